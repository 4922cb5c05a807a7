import numpy as np
import pytest
import torch

from recmill.data.batch import Batch, Columns, Position
from recmill.errors import FailureError, NonFiniteLoss
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import take_step
from recmill.training.click.task import ClickTask
from recmill.training.loop.loop import train
from recmill.training.optimize.optimizers import refuse_orphans
from tests.laws.moves import assert_moves_what_it_touches
from tests.laws.owners import assert_one_owner_each
from tests.training.click.batches import first_batch
from tests.training.conftest import OpenRun, Resolve


@pytest.mark.parametrize(
    ("dense_kind", "table_kind"),
    [
        ("sgd", "sgd"),
        ("adagrad", "adagrad"),
        ("adagrad", "rowwise_adagrad"),
        ("adam", "adam"),
        ("adamw", "rowwise_adam"),
        ("sgd", "ftrl"),
    ],
)
def test_every_parameter_has_the_owner_the_settings_name(dense_kind: str, table_kind: str, resolve: Resolve) -> None:
    assert_one_owner_each(assemble(resolve(f"dense.kind={dense_kind}", f"tables.kind={table_kind}")))


def test_a_parameter_without_an_owner_is_refused(resolve: Resolve) -> None:
    model = assemble(resolve()).model
    with pytest.raises(FailureError, match=r"parameter bottom.0.weight has 0 optimizers"):
        refuse_orphans(model, torch.optim.SGD(model.get_submodule("top").parameters(), lr=1.0))


def test_a_step_moves_the_rows_it_touches_and_all_layers(resolve: Resolve) -> None:
    parts = assemble(resolve())
    batch = first_batch(parts)
    before = [parameter.detach().clone() for parameter in parts.model.parameters()]
    assert_moves_what_it_touches(parts.tables, batch.columns.ids, lambda: take_step(parts, batch, 0))
    for old, parameter in zip(before, parts.model.parameters(), strict=True):
        assert not torch.equal(old, parameter)


def test_a_step_with_sgd_is_the_gradient_of_the_mean_loss(resolve: Resolve) -> None:
    """The tables' rows move as autograd says they should on one dense matrix for each table."""
    config = resolve("tables.kind=sgd", "dense.kind=sgd", "tables.lr=0.5", "dense.lr=0.25")
    parts, reference = assemble(config), assemble(config)
    batch = first_batch(parts)
    columns = batch.columns
    copies = [
        torch.from_numpy(reference.tables.weights(s.name).copy()).requires_grad_() for s in reference.tables.specs
    ]
    rows = torch.stack([copy[torch.from_numpy(columns.ids[:, i])] for i, copy in enumerate(copies)], dim=1)
    logits = reference.model(torch.from_numpy(columns.dense), rows)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(columns.labels))
    loss.backward()  # type: ignore[no-untyped-call]
    assert take_step(parts, batch, 0) == pytest.approx(float(loss.detach()), rel=1e-6)
    for spec, copy in zip(parts.tables.specs, copies, strict=True):
        assert copy.grad is not None
        expected = copy.detach() - 0.5 * copy.grad
        np.testing.assert_allclose(parts.tables.weights(spec.name), expected.numpy(), rtol=1e-5, atol=1e-7)
    for ours, theirs in zip(parts.model.parameters(), reference.model.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours.detach(), theirs.detach() - 0.25 * theirs.grad)


@pytest.mark.parametrize("place", ["table", "parameter", "input", "result"])
def test_the_first_non_finite_tensor_is_named(place: str, resolve: Resolve) -> None:
    parts = assemble(resolve("dense.lr=0.03", "tables.lr=0.07"))
    batch = first_batch(parts)
    if place == "table":
        parts.tables.weights("cat_3")[batch.columns.ids[0, 3]] = np.nan
        expected = "the table of cat_3"
    elif place == "parameter":
        with torch.no_grad():
            parts.model.get_parameter("top.0.bias")[0] = torch.inf
        expected = "parameter top.0.bias"
    elif place == "input":
        dense = batch.columns.dense.copy()
        dense[0, 0] = np.inf
        columns = Columns(dense, batch.columns.ids, batch.columns.labels)
        batch = Batch(columns, Position(()))
        expected = "the dense input"
    else:
        with torch.no_grad():
            parts.model.get_parameter("bottom.2.weight").fill_(3e38)
            parts.model.get_parameter("bottom.2.bias").fill_(3e38)
        expected = "the output of bottom.2"
    with pytest.raises(NonFiniteLoss, match=rf"step 5 is .*0.03 for the layers, 0.07 for the tables.*: {expected}"):
        take_step(parts, batch, 4)


def test_a_diverging_run_stops_and_leaves_the_last_good_state(resolve: Resolve, open_run: OpenRun) -> None:
    """The first step makes the layers huge, the second has no loss: what is left is the state between them."""
    config = resolve("dense.lr=1e30", "dense.kind=sgd", "stop.max_epochs=50")
    with Inputs(config) as inputs:
        task = ClickTask(assemble(config), inputs)
        with (
            open_run(task) as run,
            pytest.raises(NonFiniteLoss, match=r"(?s)step 2 is .*last good state is .*checkpoints/step_0000000001"),
        ):
            train(run, task)
        parts = assemble(config)
        with open_run(task) as run:
            assert run.restore(ClickTask(parts, inputs)).step == 1
    assert all(bool(parameter.isfinite().all()) for parameter in parts.model.parameters())


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_row_of_a_short_batch_weighs_as_much_as_any_other(micro_batches: int, resolve: Resolve) -> None:
    """With plain SGD the steps of two halves add up to the step of the whole batch, and not to twice that."""
    settings = ("tables.kind=sgd", "dense.kind=sgd", "tables.lr=0.001", "dense.lr=0.001")
    config = resolve(*settings, f"update.micro_batches={micro_batches}")
    whole, halves = assemble(config), assemble(config)
    batch = first_batch(whole)
    first = [parameter.detach().clone() for parameter in whole.model.parameters()]
    expected_loss = take_step(whole, batch, 0)
    middle = batch.num_rows // 2
    parts = [Batch(batch.columns.rows(start, start + middle), batch.position) for start in (0, middle)]
    losses = [take_step(halves, part, 0) for part in parts]
    assert np.mean(losses) == pytest.approx(expected_loss, rel=1e-3), "what is told is the mean of the rows"
    for before, one, two in zip(first, whole.model.parameters(), halves.model.parameters(), strict=True):
        torch.testing.assert_close(two - before, one - before, rtol=0.02, atol=1e-6)
    for spec in whole.tables.specs:
        np.testing.assert_allclose(halves.tables.weights(spec.name), whole.tables.weights(spec.name), atol=1e-5)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_integer_weights_are_rows_repeated(micro_batches: int, resolve: Resolve) -> None:
    """One step of a batch of weighted rows and one of a batch with each row so often end with the same weights."""
    config = resolve(
        *("tables.kind=sgd", "dense.kind=sgd", "tables.lr=0.5", "dense.lr=0.25"),
        f"update.micro_batches={micro_batches}",
    )
    weighted, repeated = assemble(config), assemble(config)
    columns = first_batch(weighted).columns
    times = np.random.default_rng(0).integers(0, 4, columns.num_rows)
    global_batch = config.data.global_batch
    rows = np.resize(np.arange(columns.num_rows), global_batch)  # short batches take short steps; these are full
    heavy = columns.take(rows)._replace(weights=np.resize(times, global_batch).astype(np.float32))
    losses = [
        take_step(weighted, Batch(heavy, Position(())), 0),
        take_step(repeated, Batch(columns.take(np.repeat(rows, np.resize(times, global_batch))), Position(())), 0),
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for spec in weighted.tables.specs:
        np.testing.assert_allclose(
            weighted.tables.weights(spec.name), repeated.tables.weights(spec.name), rtol=1e-4, atol=1e-6
        )
    for one, other in zip(weighted.model.parameters(), repeated.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
