"""Micro-batches, clipping, smoothing, lower precision, and steps that do not count."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recmill.data.batch import Batch
from recmill.errors import ConfigError, NonFiniteLoss
from recmill.settings.optimizers import Precision
from recmill.training.click.assemble import assemble
from recmill.training.click.step import ClickState, cut_rows, take_step
from recmill.training.job import run_job
from recmill.training.optimize.precision import LossScale
from tests.laws.moves import assert_moves_what_it_touches
from tests.training.checkpoint.states import bytes_of, train_steps
from tests.training.click.batches import first_batch
from tests.training.conftest import Resolve
from tests.training.records import read_records

TABLES_AND_LAYERS = [("sgd", "sgd"), ("adagrad", "adagrad"), ("rowwise_adam", "adam")]


def assert_same_weights(ours: ClickState, theirs: ClickState, *, atol: float) -> None:
    for spec in ours.tables.specs:
        np.testing.assert_allclose(
            ours.tables.weights(spec.name), theirs.tables.weights(spec.name), rtol=1e-4, atol=atol
        )
    for a, b in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("num_micro", [2, 3, 7])
@pytest.mark.parametrize(("tables", "dense"), TABLES_AND_LAYERS)
def test_micro_batches_are_one_step_of_the_whole_batch(
    tables: str, dense: str, num_micro: int, resolve: Resolve
) -> None:
    settings = (f"tables.kind={tables}", f"dense.kind={dense}", "tables.lr=0.01", "dense.lr=0.01")
    whole = assemble(resolve(*settings))
    pieces = assemble(resolve(*settings, f"update.micro_batches={num_micro}"))
    train_steps(whole, 3)
    train_steps(pieces, 3)
    assert whole.tables.num_updates == pieces.tables.num_updates == 3
    # Adam divides small gradients by their own size, and with it what float32 has rounded
    assert_same_weights(whole, pieces, atol=1e-4 if dense == "adam" else 2e-6)


def test_micro_batches_lose_no_row(resolve: Resolve) -> None:
    columns = first_batch(assemble(resolve())).columns
    for num_pieces in (1, 3, 100, 999):
        pieces = cut_rows(columns, num_pieces)
        assert len(pieces) == min(num_pieces, 100)
        np.testing.assert_array_equal(np.concatenate([piece.ids for piece in pieces]), columns.ids)


def test_a_loss_that_is_not_finite_in_a_later_micro_batch_moves_nothing(resolve: Resolve) -> None:
    parts = assemble(resolve("update.micro_batches=4"))
    batch = first_batch(parts)
    columns = batch.columns._replace(dense=batch.columns.dense.copy())
    columns.dense[-1, 0] = np.inf
    before = bytes_of(parts)
    with pytest.raises(NonFiniteLoss, match="the dense input"):
        take_step(parts, replace(batch, columns=columns), 0)
    assert bytes_of(parts) == before
    take_step(parts, batch, 0)
    fresh = assemble(parts.config)
    take_step(fresh, batch, 0)
    assert bytes_of(parts) == bytes_of(fresh), "nothing of the failed step is left"


def test_clipping_shortens_the_layers_gradient_and_not_the_tables(resolve: Resolve) -> None:
    settings = ("dense.kind=sgd", "tables.kind=sgd", "dense.lr=1.0")
    plain, clipped = assemble(resolve(*settings)), assemble(resolve(*settings, "update.clip_norm=0.001"))
    batch = first_batch(plain)
    moves = []
    for parts in (plain, clipped):
        before = [parameter.detach().clone() for parameter in parts.model.parameters()]
        take_step(parts, batch, 0)
        after = parts.model.parameters()
        moves.append(torch.cat([(old - new).flatten() for old, new in zip(before, after, strict=True)]))
    assert moves[0].norm() > 0.01
    assert float(moves[1].detach().norm()) == pytest.approx(0.001, rel=1e-2)
    torch.testing.assert_close(moves[1] / moves[1].norm(), moves[0] / moves[0].norm(), rtol=1e-2, atol=1e-3)
    for spec in plain.tables.specs:
        np.testing.assert_array_equal(plain.tables.weights(spec.name), clipped.tables.weights(spec.name))


def test_smoothed_labels(resolve: Resolve) -> None:
    parts = assemble(resolve("loss.label_smoothing=0.2"))
    batch = first_batch(parts)
    with torch.no_grad():
        logits = parts.model(torch.from_numpy(batch.columns.dense), parts.tables.look_up(batch.columns.ids))
    p, y = logits.sigmoid().double().numpy(), batch.columns.labels * 0.8 + 0.1
    expected = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean()
    assert take_step(parts, batch, 0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_lower_precision_learns_about_the_same(kind: str, resolve: Resolve) -> None:
    exact, rough = assemble(resolve()), assemble(resolve(f"precision.kind={kind}"))
    batch = first_batch(exact)
    losses = [[take_step(parts, batch, step) for step in range(20)] for parts in (exact, rough)]
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses[1][:6], losses[0][:6], rtol=0.01)  # later a hidden unit is on in one of them only
    assert losses[1][-1] < 0.1 * losses[1][0]
    assert all(parameter.dtype == torch.float32 for parameter in rough.model.parameters())


def scaled(parts: ClickState, **settings: object) -> ClickState:
    """The same parts in float32 with the loss scaled as fp16 would."""
    return replace(parts, loss_scale=LossScale(Precision.model_validate({"kind": "fp16", **settings})))


def test_a_scale_that_is_a_power_of_two_changes_no_bit(resolve: Resolve) -> None:
    plain, with_scale = assemble(resolve()), scaled(assemble(resolve()), scaling="static", scale=1024.0)
    train_steps(plain, 5)
    train_steps(with_scale, 5)
    assert bytes_of(plain) == bytes_of(with_scale)


def overflowing(parts: ClickState) -> tuple[Batch, Callable[[], float]]:
    batch = first_batch(parts)
    return batch, lambda: take_step(parts, batch, 0)


@pytest.mark.parametrize("scaling", ["dynamic", "static"])
def test_a_step_whose_gradient_overflows_changes_neither_layers_nor_tables(scaling: str, resolve: Resolve) -> None:
    parts = scaled(assemble(resolve("tables.kind=adam", "dense.kind=adam")), scaling=scaling, scale=2.0**128)
    before = bytes_of(parts)
    _, step = overflowing(parts)
    assert np.isfinite(step())
    assert bytes_of(parts) == before
    assert parts.loss_scale is not None
    assert (parts.tables.num_updates, parts.loss_scale.num_skipped) == (0, 1)
    assert parts.loss_scale.scale == (2.0**128 if scaling == "static" else 2.0**127)
    assert all(parameter.grad is None for parameter in parts.model.parameters())


def test_a_dynamic_scale_finds_its_size_and_the_step_counts_again(resolve: Resolve) -> None:
    parts = scaled(assemble(resolve()), scale=2.0**132)
    batch, step = overflowing(parts)
    assert parts.loss_scale is not None
    before = bytes_of(parts)
    while bytes_of(parts) == before and parts.loss_scale.num_skipped < 20:
        step()
    assert parts.tables.num_updates == 1
    assert 2.0**112 < parts.loss_scale.scale < 2.0**132
    assert_moves_what_it_touches(parts.tables, batch.columns.ids, step)


def test_skipped_steps_are_told_by_records_and_results(resolve: Resolve, tmp_path: Path) -> None:
    config = resolve("precision.kind=fp16", "precision.scale=1e39", "stop.max_steps=10", "cadence.log_every_steps=1")
    results = run_job(config, tmp_path / "run")
    assert results["step"] == 10, "a skipped step has spent its rows"
    assert 0 < results["skipped_steps"] <= 10
    assert results["loss_scale"] == 1e39 / 2 ** results["skipped_steps"]
    told = [record["skipped_steps"] for record in read_records(tmp_path / "run") if record["kind"] == "train"]
    assert told == [min(step, results["skipped_steps"]) for step in range(1, 11)]


def test_the_scale_grows_after_so_many_good_steps_in_a_row() -> None:
    scale = LossScale(Precision(kind="fp16", scale=8.0, growth_interval=3))
    history = []
    for is_finite in (True, True, False, True, True, True, True):
        scale.note(is_finite=is_finite)
        history.append(scale.scale)
    assert history == [8.0, 8.0, 4.0, 4.0, 4.0, 8.0, 8.0]
    assert scale.num_skipped == 1


def test_gradients_that_no_scale_can_save_end_the_run() -> None:
    scale = LossScale(Precision(kind="fp16", scale=2.0))
    scale.note(is_finite=False)
    with pytest.raises(NonFiniteLoss, match="not finite even if the loss is not scaled up"):
        scale.note(is_finite=False)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("precision.tf32=true", "precision.tf32 = true needs a CUDA device and this run is on a CPU; leave it out"),
    ],
)
def test_what_a_cpu_cannot_do_is_refused_before_anything_is_written(
    setting: str, complaint: str, resolve: Resolve, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        run_job(resolve(setting), tmp_path / "run")
    assert complaint in str(caught.value)
    assert not (tmp_path / "run").exists()
