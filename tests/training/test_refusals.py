"""Settings that cannot work with each other or with the data are rejected before anything is trained or written."""

from pathlib import Path

import pytest

from recmill.cli.main import main
from recmill.errors import ConfigError
from recmill.recipes import find_recipe
from recmill.settings.clicks import TrainConfig
from recmill.settings.tree import from_tree, laid_over, parse_assignments
from recmill.training.click.inputs import Inputs, refuse_large_batch
from recmill.training.job import run_job
from tests.training.conftest import Resolve


def refusal_of(config: TrainConfig, run_dir: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        run_job(config, run_dir)
    assert not (run_dir / "config.toml").exists(), "nothing has begun"
    return str(caught.value)


@pytest.mark.parametrize(
    ("recipe", "assignment", "complaint"),
    [
        (
            "small",
            "model.pooling_by_column={cat_26 = 'mean'}",
            "model.pooling_by_column names 'cat_26', which is not one of the columns cat_0, cat_1, ",
        ),
        (
            "small",
            "model.pooling_by_column={cat_26 = 'mean'}",
            "cat_25; leave it out, or give the schema that has it",
        ),
        (
            "mlperf",
            "model.embedding_dim=64",
            "model.bottom ends in 128 and model.embedding_dim is 64: the dense features stand beside the embeddings as "
            "one more vector, so the two must be equal; set model.embedding_dim=128 or model.bottom=[512, 256, 64]",
        ),
        ("small", "model.top=[512, 256]", "model.top ends in 256; a click model ends in 1, the logit: set model.top="),
        (
            "demo",
            "schedule.warmup_steps=600",
            "schedule.decay_start_step (500) comes before the warm-up ends (600); raise it or shorten schedule.warmup_",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_none(recipe: str, assignment: str, complaint: str) -> None:
    tree = find_recipe(recipe)().model_dump(mode="json", exclude_none=True)
    with pytest.raises(ConfigError) as caught:
        from_tree(TrainConfig, laid_over(tree, parse_assignments([assignment])))
    assert complaint in str(caught.value)


def test_a_batch_larger_than_the_log_is_refused(resolve: Resolve, tmp_path: Path) -> None:
    assert refusal_of(resolve("data.global_batch=2001"), tmp_path / "run") == (
        "data.global_batch = 2,001 is more than the 2,000 rows there are to train on, so that no step would have a "
        "full batch; set data.global_batch=2000 or less, or give more data"
    )
    with Inputs(resolve("data.global_batch=2000")) as inputs:
        refuse_large_batch(resolve("data.global_batch=2000"), inputs)


def test_a_last_line_without_its_end_is_a_row(resolve: Resolve, tmp_path: Path) -> None:
    lines = Path(resolve().data.dir, "day_0").read_text().splitlines(keepends=True)
    for i in range(3):
        (tmp_path / f"day_{i}").write_text("".join(lines[10 * i : 10 * i + 10]).removesuffix("\n"))
    config = resolve(f"data.dir={str(tmp_path)!r}")
    with Inputs(config) as inputs:
        assert inputs.count_rows("train") == 20


def test_a_batch_larger_than_prepared_rows_is_refused(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", "--data", str(tiny_world_dir), "--out", str(tmp_path / "rows")]) == 0
    words = ["train", "demo", "--data", str(tmp_path / "rows"), "--run", str(tmp_path / "run")]
    assert main([*words, "--set", "data.global_batch=2001"]) == 2
    assert "data.global_batch = 2,001 is more than the 2,000 rows there are to train on" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.toml").exists()


def test_tables_smaller_than_the_ids_are_refused(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows_dir = tmp_path / "rows"
    assert main(["prepare", "--data", str(tiny_world_dir), "--out", str(rows_dir)]) == 0
    small = ["--set", "data.global_batch=100", "--run", str(tmp_path / "run")]
    for source, what in (
        (["--data", str(rows_dir)], f"the rows in {rows_dir} has ids up to"),
        (["--data", str(tiny_world_dir), "--vocabulary", str(rows_dir)], f"{rows_dir / 'vocabulary'} has ids up to"),
    ):
        for setting, value in (("data.max_rows_per_table", "3"), ("data.table_rows", str([3] * 26))):
            capsys.readouterr()
            assert main(["train", "demo", *source, *small, "--set", f"{setting}={value}"]) == 2
            told = capsys.readouterr().err
            assert f"{setting} = 3 for column cat_" in told
            assert what in told
            assert f"leave out {setting}: --data or --vocabulary takes over the sizes" in told
            assert not (tmp_path / "run" / "config.toml").exists()


def test_fp16_is_refused_where_tables_are_updated_before_the_scale_can_be_taken_back(
    resolve: Resolve, tmp_path: Path
) -> None:
    assert refusal_of(resolve("precision.kind=fp16", "sharding.engine=torchrec"), tmp_path / "run") == (
        "precision.kind = fp16 scales the loss, and TorchRec updates its tables within the backward pass, before the "
        "scale can be taken back; set precision.kind=bf16 or fp32, or train in one process on the CPU"
    )


def test_columns_that_the_files_have_not_are_refused(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in tiny_world_dir.glob("day_*"):
        lines = path.read_text().splitlines()
        (tmp_path / path.name).write_text("".join(line.rsplit("\t", 1)[0] + "\n" for line in lines))
    words = ["--data", str(tmp_path), "--run", str(tmp_path / "run"), "--set", "data.global_batch=100"]
    assert main(["train", "demo", *words]) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path / 'day_0'}:1: the line has 39 fields, schema criteo expects 40" in told
    assert not (tmp_path / "run" / "config.toml").exists()
