"""Law *tier* for whole runs: with tables in tiers they end with the bytes of a run whose tables are in memory."""

import random
from pathlib import Path

import pytest

from recmill.errors import ConfigError, RunError
from recmill.recipes.resolve import config
from recmill.settings.clicks import TrainConfig
from recmill.training.job import run_job
from tests.laws.compare import compare, results_without_times, state_bytes
from tests.laws.kill import train_under_fire

RULES = ("sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl")
ROW_BYTES = {"sgd": 64, "adagrad": 128, "rowwise_adagrad": 68, "adam": 192, "rowwise_adam": 132, "ftrl": 192}


def settings(data_dir: Path, *more: str) -> TrainConfig:
    given = (
        *("threads=1", f"data.table_rows={[150] * 26}", "data.global_batch=64", "tables.lr=0.02"),
        *("cadence.log_every_steps=10", "cadence.save_every_steps=9", "cadence.evaluate_every_steps=14"),
        *("cadence.keep_ledger=true", "baselines.enabled=false", "stop.max_epochs=2", *more),
    )
    found = config("demo", data=data_dir, overrides=given)
    assert isinstance(found, TrainConfig)
    return found


def tiers(kind: str, rule: str, share: float) -> tuple[str, str]:
    slot_bytes = ROW_BYTES[rule] + 29
    return f"store.kind={kind}", f"store.cache_memory={max(int(share * 3900), 900) * slot_bytes}"


def rows_of(run_dir: Path) -> dict[str, bytes]:
    """By table, wherever they lie."""
    from recmill.training.checkpoint.saved_tables import SavedTables

    last, found = max((run_dir / "checkpoints").glob("step_*")), dict[str, bytes]()
    for directory, what in ((last, "weights"), (last, "state"), (run_dir / "model", "weights")):
        with SavedTables(directory, what) as saved:  # type: ignore[arg-type]
            for table in saved.names:
                rows = b"".join(rows.numpy().tobytes() for rows in saved.read_rows(table))
                found[f"{directory.name}/{what}/{table}"] = rows
    return found


@pytest.mark.parametrize("rule", RULES)
def test_a_run_in_tiers_is_one_in_memory(rule: str, tiny_world_dir: Path, tmp_path: Path) -> None:
    plain = settings(tiny_world_dir, f"tables.kind={rule}")
    run_job(plain, tmp_path / "memory")
    expected = rows_of(tmp_path / "memory")
    for kind, share in (("cached_ssd", 1.0), ("cached_ssd", 0.01), ("cached_host_mem", 0.01)):
        run_dir = tmp_path / f"{kind}-{share}"
        run_job(settings(tiny_world_dir, f"tables.kind={rule}", *tiers(kind, rule, share)), run_dir)
        assert rows_of(run_dir) == expected, (kind, share)
        assert results_without_times(run_dir) == results_without_times(tmp_path / "memory")
        assert not (run_dir / "store").exists(), "what only the running process needs is gone"


def test_a_run_goes_on_in_any_tier(tiny_world_dir: Path, tmp_path: Path) -> None:
    """Each quarter of the run has its tables somewhere else."""
    run_job(settings(tiny_world_dir), tmp_path / "memory")
    steps = [20, 31, 47, 0]
    kinds = [("store.kind=device_mem",), tiers("cached_ssd", "rowwise_adagrad", 0.3), ("store.kind=cached_host_mem",)]
    kinds.append(tiers("cached_ssd", "rowwise_adagrad", 0.1))
    for turn, (stop, kind) in enumerate(zip(steps, kinds, strict=True)):
        run_job(settings(tiny_world_dir, f"stop.max_steps={stop}", *kind), tmp_path / "wandering", resume=turn > 0)
    assert rows_of(tmp_path / "wandering") == rows_of(tmp_path / "memory")
    assert results_without_times(tmp_path / "wandering") == results_without_times(tmp_path / "memory")


def test_what_a_killed_process_left_in_the_store_does_not_count(tiny_world_dir: Path, tmp_path: Path) -> None:
    given = tiers("cached_ssd", "rowwise_adagrad", 0.1)
    run_job(settings(tiny_world_dir, *given), tmp_path / "alone")
    run_job(settings(tiny_world_dir, "stop.max_steps=20", *given), tmp_path / "torn")
    store = tmp_path / "torn" / "store"
    store.mkdir()
    (store / "segment-0000000001.rows").write_bytes(b"half of a segment")
    (store / "segment-0000000900.rows").write_bytes(b"")
    run_job(settings(tiny_world_dir, *given), tmp_path / "torn", resume=True)
    assert state_bytes(tmp_path / "torn") == state_bytes(tmp_path / "alone")


def test_a_damaged_file_of_rows_is_named_and_the_checkpoint_before_it_is_used(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tiers("cached_ssd", "rowwise_adagrad", 0.1)
    run_dir = tmp_path / "run"
    run_job(settings(tiny_world_dir, *given), tmp_path / "alone")
    run_job(settings(tiny_world_dir, "stop.max_steps=20", *given), run_dir)
    newest = max((run_dir / "checkpoints").glob("step_*"))
    path = max(newest.glob("*.rows"))
    content = bytearray(path.read_bytes())
    path.unlink()  # the files of other checkpoints have the same inode
    content[100] ^= 1
    path.write_bytes(content)
    run_job(settings(tiny_world_dir, *given), run_dir, resume=True)
    assert f"{path} is not the file that manifest.json lists" in capsys.readouterr().err
    assert state_bytes(run_dir) == state_bytes(tmp_path / "alone")


def test_a_cache_that_is_too_small_for_a_batch_is_rejected(tiny_world_dir: Path, tmp_path: Path) -> None:
    given = settings(tiny_world_dir, "store.kind=cached_ssd", "store.cache_memory=8192")
    with pytest.raises(
        ConfigError, match=r"store\.cache_memory holds 120 rows, and a batch of 64 rows uses [0-9]+ rows"
    ):
        run_job(given, tmp_path / "run")


def test_a_mean_of_weights_is_rejected(tiny_world_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"average\.from_step = 5 keeps the mean of all rows in memory"):
        settings(tiny_world_dir, "average.from_step=5", "store.kind=cached_ssd")


def test_a_store_of_another_dimension_is_rejected(tiny_world_dir: Path, tmp_path: Path) -> None:
    from recmill.training.checkpoint.checkpoint import read_model
    from recmill.training.click.assemble import assemble

    given = tiers("cached_ssd", "rowwise_adagrad", 1.0)
    run_job(settings(tiny_world_dir, "stop.max_steps=3", *given), tmp_path / "run")
    state = assemble(settings(tiny_world_dir, "model.embedding_dim=8", "model.bottom=[64, 8]", *given))
    with pytest.raises(RunError, match=r"model"):
        read_model(tmp_path / "run" / "model", state)


@pytest.mark.slow
def test_a_run_in_tiers_that_is_killed_ends_with_the_same_bytes(tiny_world_dir: Path, tmp_path: Path) -> None:
    words = ["demo", "--data", str(tiny_world_dir)]
    for each in (
        *("threads=1", f"data.table_rows={[150] * 26}", "data.global_batch=50", "stop.max_epochs=6"),
        *("cadence.log_every_steps=10", "cadence.save_every_steps=20", "cadence.keep_ledger=true"),
        *tiers("cached_ssd", "rowwise_adagrad", 0.1),
    ):
        words += ["--set", each]
    train_under_fire(words, tmp_path / "alone", num_kills=0, rng=random.Random(0))
    assert train_under_fire(words, tmp_path / "fire", num_kills=5, rng=random.Random(1)).kills == 5
    found = compare(tmp_path / "alone", tmp_path / "fire")
    assert (found["bit_equal"], found["rows_lost"], found["rows_repeated"]) == (1, 0, 0)
