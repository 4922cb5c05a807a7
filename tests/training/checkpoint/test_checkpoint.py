from pathlib import Path

import numpy as np
import pytest
import torch

from recmill.errors import RunError
from recmill.files import write_manifest
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.checkpoint import read_checkpoint, read_model, write_checkpoint, write_model
from recmill.training.checkpoint.snapshot import COUNTERS
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import Inputs
from recmill.training.click.task import ClickTask
from recmill.training.progress import Progress
from tests.training.checkpoint.states import bytes_of, train_steps
from tests.training.conftest import OpenRun, Resolve


@pytest.mark.parametrize(
    "settings",
    [
        ("dense.kind=sgd", "tables.kind=sgd"),
        ("dense.kind=adagrad", "tables.kind=adagrad"),
        ("dense.kind=sgd", "dense.momentum=0.9", "tables.kind=sgd", "tables.momentum=0.9"),
        ("dense.kind=adam", "tables.kind=adam", "tables.weight_decay=0.01"),
        ("dense.kind=adamw", "tables.kind=rowwise_adam", "update.micro_batches=3"),
        ("dense.initial_accumulator=0.1", "tables.kind=ftrl", "tables.l1=0.001"),
        ("precision.kind=fp16", "precision.scale=4.0", "precision.growth_interval=7", "tables.kind=adam"),
    ],
    ids=lambda settings: " ".join(settings),
)
def test_a_run_that_stopped_goes_on_to_the_same_bytes(
    settings: tuple[str, ...], resolve: Resolve, tmp_path: Path
) -> None:
    config = resolve(*settings, "stop.max_epochs=2", "schedule.warmup_steps=15")
    uninterrupted = assemble(config)
    train_steps(uninterrupted, 30)
    first = assemble(config)
    write_checkpoint(tmp_path / "saved", first, train_steps(first, 12))
    second = assemble(config)
    progress = read_checkpoint(tmp_path / "saved", second)
    assert bytes_of(first) == bytes_of(second)
    assert (progress.step, progress.num_rows, progress.train_s, progress.blocked_s) == (12, 1200, 6.0, 3.0)
    train_steps(second, 18, progress)
    assert bytes_of(second) == bytes_of(uninterrupted)
    assert second.tables.num_updates == uninterrupted.tables.num_updates == 30
    if second.loss_scale and uninterrupted.loss_scale:
        assert second.loss_scale.to_json() == uninterrupted.loss_scale.to_json()
        assert second.loss_scale.scale == 4.0 * 2**4, "doubled at steps 7, 14, 21 and 28"


def test_a_model_holds_the_weights_and_their_settings(tiny_config: TrainConfig, tmp_path: Path) -> None:
    trained = assemble(tiny_config)
    write_model(tmp_path / "model", trained, train_steps(trained, 3))
    fresh = assemble(tiny_config)
    read_model(tmp_path / "model", fresh)
    for spec in fresh.tables.specs:
        np.testing.assert_array_equal(fresh.tables.weights(spec.name), trained.tables.weights(spec.name))
        assert not fresh.tables.state(spec.name).any()
    for ours, theirs in zip(fresh.model.parameters(), trained.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.toml",
        "dense.safetensors",
        "manifest.json",
        "tables.safetensors",
    ]


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered", "no manifest", "broken manifest"])
def test_a_damaged_checkpoint_is_refused_by_the_name_of_the_file(
    damage: str, tiny_config: TrainConfig, tmp_path: Path
) -> None:
    parts = assemble(tiny_config)
    directory = tmp_path / "saved"
    write_checkpoint(directory, parts, Progress())
    file = directory / "tables.safetensors"
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[:-1])
    elif damage == "altered":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no manifest":
        (directory / "manifest.json").unlink()
    else:
        (directory / "manifest.json").write_text("{")
    with pytest.raises(RunError, match=r"manifest.json" if "manifest" in damage else r"tables.safetensors"):
        read_checkpoint(directory, parts)


def test_weights_of_another_shape_are_refused(resolve: Resolve, tmp_path: Path) -> None:
    write_model(tmp_path / "model", assemble(resolve()), Progress())
    with pytest.raises(RunError, match=r"cat_0 has shape \(50, 4\), expected \(40, 4\)"):
        read_model(tmp_path / "model", assemble(resolve("data.max_rows_per_table=40")))


def test_restore_falls_back_on_the_newest_intact_checkpoint(resolve: Resolve, open_run: OpenRun) -> None:
    config = resolve()
    with Inputs(config) as inputs:
        task, restored = ClickTask(assemble(config), inputs), ClickTask(assemble(config), inputs)
        with open_run(task) as run:
            for num_steps in (2, 1):
                start = Progress() if num_steps == 2 else Progress(step=2)
                run.save(train_steps(task.state, num_steps, start), task)
        older, newer = run.saver.checkpoint_dirs()
        (newer / "dense.safetensors").write_bytes(b"torn")
        with open_run(restored) as resumed:
            assert resumed.restore(restored).step == 2
            resumed.save(train_steps(restored.state, 1, Progress(step=2)), restored)
        with open_run(task) as again:
            assert again.restore(task).step == 3, "the torn one has been replaced"
            (newer / "manifest.json").unlink()
            (older / "manifest.json").unlink()
            with pytest.raises(RunError, match=r"none of the 2 checkpoints in .* can be used: "):
                again.restore(task)


def test_a_checkpoint_of_an_older_version_is_refused_by_name(resolve: Resolve, tmp_path: Path) -> None:
    parts = assemble(resolve())
    write_checkpoint(tmp_path / "saved", parts, train_steps(parts, 1))
    (tmp_path / "saved" / COUNTERS).unlink()
    write_manifest(tmp_path / "saved", kind="checkpoint", step=1)
    with pytest.raises(RunError, match=r"saved has no counters.json: an older version saved it"):
        read_checkpoint(tmp_path / "saved", parts)
