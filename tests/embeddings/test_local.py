"""The local engine against FBGEMM and against `torch.optim` on dense copies."""

import numba
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.errors import DataError
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.table_rules import TABLE_RULES
from tests.embeddings.drawn import DIM, NUM_PLACES, NUM_STEPS, SPECS, draw_gradient, draw_ids, train
from tests.laws.moves import assert_moves_what_it_touches

LR, EPS = 0.05, 1e-6
KINDS = tuple(TABLE_RULES)


def optimizer_of(kind: str) -> TableOptimizer:
    return TableOptimizer(kind=kind, lr=LR, eps=EPS if "eps" in TABLE_RULES[kind].numbers else None)


def build(kind: str = "rowwise_adagrad", *, seed: int = 0) -> LocalTables:
    return LocalTables(SPECS, DIM, optimizer_of(kind), seed=seed)


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_gather_gives_the_rows(kind: str) -> None:
    tables = build(kind)
    ids = draw_ids(0)
    looked_up = tables.look_up(ids).detach().numpy()
    for column, spec in enumerate(SPECS):
        np.testing.assert_array_equal(looked_up[:, column], tables.weights(spec.name)[ids[:, column]])


@pytest.mark.parametrize("all_same", [False, True], ids=["mixed", "duplicates"])
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad"])
def test_fifty_steps_equal_fbgemm(kind: str, all_same: bool) -> None:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    theirs = {
        "sgd": EmbOptimType.EXACT_SGD,
        "adagrad": EmbOptimType.EXACT_ADAGRAD,
        "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    }
    tables = build(kind)
    fbgemm = SplitTableBatchedEmbeddingBagsCodegen(
        [(spec.num_rows, DIM, EmbeddingLocation.HOST, ComputeDevice.CPU) for spec in SPECS],
        optimizer=theirs[kind],
        learning_rate=LR,
        eps=EPS,
    )
    for spec, weights in zip(SPECS, fbgemm.split_embedding_weights(), strict=True):
        weights.data.copy_(torch.from_numpy(tables.weights(spec.name)))
    train(tables, all_same=all_same)
    offsets = torch.arange(NUM_PLACES * len(SPECS) + 1)
    for step in range(NUM_STEPS):
        indices = torch.from_numpy(draw_ids(step, all_same=all_same).T.ravel().copy())
        fbgemm(indices, offsets).backward(draw_gradient(step).reshape(NUM_PLACES, -1))
    for spec, weights in zip(SPECS, fbgemm.split_embedding_weights(), strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), weights.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("all_same", [False, True], ids=["mixed", "duplicates"])
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_fifty_steps_equal_torch_on_a_dense_copy(kind: str, all_same: bool) -> None:
    tables = build(kind)
    copies = [torch.from_numpy(tables.weights(spec.name).copy()).requires_grad_() for spec in SPECS]
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(copies, lr=LR) if kind == "sgd" else torch.optim.Adagrad(copies, lr=LR, eps=EPS)
    )
    train(tables, all_same=all_same)
    for step in range(NUM_STEPS):
        ids, gradient = draw_ids(step, all_same=all_same), draw_gradient(step)
        rows = torch.stack([copy[torch.from_numpy(ids[:, i])] for i, copy in enumerate(copies)], dim=1)
        rows.backward(gradient)  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    for spec, copy in zip(SPECS, copies, strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), copy.detach().numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("all_same", [False, True], ids=["mixed", "duplicates"])
def test_rowwise_adagrad_equals_its_formula_in_double_precision(all_same: bool) -> None:
    tables = build("rowwise_adagrad")
    weights = {spec.name: tables.weights(spec.name).astype(np.float64) for spec in SPECS}
    state = {spec.name: np.zeros(spec.num_rows) for spec in SPECS}
    train(tables, all_same=all_same)
    for step in range(NUM_STEPS):
        ids, gradient = draw_ids(step, all_same=all_same), draw_gradient(step).double().numpy()
        for column, spec in enumerate(SPECS):
            total = np.zeros((spec.num_rows, DIM))
            np.add.at(total, ids[:, column], gradient[:, column])
            touched = np.unique(ids[:, column])
            state[spec.name][touched] += (total[touched] ** 2).mean(axis=1)
            rates = LR / (np.sqrt(state[spec.name][touched]) + EPS)
            weights[spec.name][touched] -= rates[:, None] * total[touched]
    for spec in SPECS:
        np.testing.assert_allclose(tables.weights(spec.name), weights[spec.name], rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(tables.state(spec.name)[:, 0], state[spec.name], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_touched_rows_move(kind: str) -> None:
    tables = build(kind)
    ids = draw_ids(1)
    gradient = draw_gradient(1)
    assert_moves_what_it_touches(
        tables,
        ids,
        lambda: tables.look_up(ids).backward(gradient),  # type: ignore[no-untyped-call]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    results = []
    for threads in (1, 2):
        if threads > numba.config.NUMBA_NUM_THREADS:
            pytest.skip("one core")
        numba.set_num_threads(threads)
        try:
            tables = build(kind)
            train(tables, all_same=False)
        finally:
            numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
        results.append(b"".join(tables.weights(spec.name).tobytes() for spec in SPECS))
    assert results[0] == results[1]


def test_first_values_depend_on_seed_name_row_and_column_alone() -> None:
    larger = LocalTables([TableSpec("other", 7), TableSpec("cat_0", 50)], 2 * DIM, TableOptimizer(), seed=0)
    ours = build(seed=0).weights("cat_0")
    np.testing.assert_array_equal(ours, larger.weights("cat_0")[:, :DIM])
    assert not np.array_equal(ours, build(seed=1).weights("cat_0"))
    assert not np.array_equal(ours[:7], larger.weights("other")[:, :DIM])


def test_first_values_are_uniform_within_the_published_bound() -> None:
    tables = LocalTables([TableSpec("cat_0", 10_000)], DIM, TableOptimizer(), seed=3)
    unit = np.sort(tables.weights("cat_0").ravel().astype(np.float64) * 100)  # 1/√rows = 0.01
    assert unit[0] >= -1
    assert unit[-1] < 1
    expected = np.linspace(-1, 1, len(unit))
    assert np.abs(unit - expected).max() < 2 * 1.95 / np.sqrt(len(unit))  # Kolmogorov–Smirnov at 0.001


@pytest.mark.parametrize(("value", "shown"), [(3, "3"), (-1, "-1"), (2**40, "1099511627776")])
def test_an_id_outside_its_table_names_column_and_value(value: int, shown: str) -> None:
    ids = draw_ids(0)
    ids[5, 1] = value
    tables = build()
    before = tables.weights("cat_0").copy()
    with pytest.raises(DataError, match=rf"column cat_1: id {shown} is outside its table of 3 rows \(row 5 "):
        tables.look_up(ids)
    np.testing.assert_array_equal(before, tables.weights("cat_0"))


def test_the_engine_takes_batches_of_any_size_one_after_the_other() -> None:
    tables = build("sgd")
    for num_places in (1, 64, 3, 500):
        ids = np.zeros((num_places, len(SPECS)), np.int64)
        before = tables.weights("cat_2")[0].copy()
        tables.look_up(ids).sum().backward()  # type: ignore[no-untyped-call]
        np.testing.assert_allclose(tables.weights("cat_2")[0], before - np.float32(LR) * num_places, rtol=1e-5)


# Several values in one column: their rows are summed.

POOLED = (TableSpec("one", 50), TableSpec("many", 7, 4), TableSpec("some", 100, 2))


def draw_slots(step: int) -> NDArray[np.int64]:
    """Ids (B, S) with absent slots, equal ids in one row, and rows of the batch without any."""
    rng = np.random.default_rng(step)
    columns = [
        rng.integers(0 if spec.num_slots == 1 else -2, spec.num_rows, (NUM_PLACES, spec.num_slots)) for spec in POOLED
    ]
    return np.maximum(np.concatenate(columns, axis=1), -1)


def build_pooled(kind: str) -> LocalTables:
    return LocalTables(POOLED, DIM, optimizer_of(kind), seed=0)


def bags(ids: NDArray[np.int64], copies: list[torch.Tensor]) -> torch.Tensor:
    """`torch.nn.functional.embedding_bag` in mode "sum", table by table, (B, F, D)."""
    pooled, slot = [], 0
    for spec, copy in zip(POOLED, copies, strict=True):
        block = ids[:, slot : slot + spec.num_slots]
        slot += spec.num_slots
        present = torch.from_numpy(block[block >= 0])
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum((block >= 0).sum(axis=1))[:-1]]))
        pooled.append(torch.nn.functional.embedding_bag(present, copy, offsets, mode="sum"))
    return torch.stack(pooled, dim=1)


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_fifty_pooled_steps_equal_torchs_embedding_bags(kind: str) -> None:
    tables = build_pooled(kind)
    copies = [torch.from_numpy(tables.weights(spec.name).copy()).requires_grad_() for spec in POOLED]
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(copies, lr=LR) if kind == "sgd" else torch.optim.Adagrad(copies, lr=LR, eps=EPS)
    )
    for step in range(NUM_STEPS):
        ids, gradient = draw_slots(step), draw_gradient(step)
        ours, theirs = tables.look_up(ids), bags(ids, copies)
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
        ours.backward(gradient)  # type: ignore[no-untyped-call]
        theirs.backward(gradient)  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    for spec, copy in zip(POOLED, copies, strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), copy.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_touched_rows_of_several_slots_move(kind: str) -> None:
    tables = build_pooled(kind)
    ids, gradient = draw_slots(1), draw_gradient(1)
    assert_moves_what_it_touches(
        tables,
        ids,
        lambda: tables.look_up(ids).backward(gradient),  # type: ignore[no-untyped-call]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_pooling_one_value_is_looking_it_up(kind: str) -> None:
    """Bit for bit: tables with a second slot that is never used learn what tables with one slot do."""
    plain = build(kind)
    pooled = LocalTables(
        [TableSpec(spec.name, spec.num_rows, 2) for spec in SPECS],
        DIM,
        optimizer_of(kind),
        seed=0,
    )
    for step in range(5):
        ids, gradient = draw_ids(step), draw_gradient(step)
        with_gaps = np.full((NUM_PLACES, 2 * len(SPECS)), -1)
        with_gaps[:, step % 2 :: 2] = ids
        plain.look_up(ids).backward(gradient)  # type: ignore[no-untyped-call]
        pooled.look_up(with_gaps).backward(gradient)  # type: ignore[no-untyped-call]
    for spec in SPECS:
        np.testing.assert_array_equal(plain.weights(spec.name), pooled.weights(spec.name))


@pytest.mark.parametrize(("slot", "value", "name"), [(0, -1, "one"), (1, -2, "many"), (4, 7, "many"), (6, 100, "some")])
def test_an_id_outside_its_table_is_found_in_any_slot(slot: int, value: int, name: str) -> None:
    ids = draw_slots(0)
    ids[5, slot] = value
    with pytest.raises(DataError, match=rf"column {name}: id {value} is outside its table of \d+ rows \(row 5 "):
        build_pooled("sgd").look_up(ids)


# Means instead of sums, by table.

AVERAGED = (TableSpec("one", 50, 1, "mean"), TableSpec("many", 7, 4, "mean"), TableSpec("some", 100, 2, "sum"))


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_fifty_averaged_steps_equal_torchs_embedding_bags(kind: str) -> None:
    """Each table in its own mode, with rows of the batch that hold no value."""
    tables = LocalTables(AVERAGED, DIM, optimizer_of(kind), seed=0)
    copies = [
        torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(tables.weights(spec.name).copy()), freeze=False, mode=spec.pooling
        )
        for spec in AVERAGED
    ]
    weights = [copy.weight for copy in copies]
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(weights, lr=LR) if kind == "sgd" else torch.optim.Adagrad(weights, lr=LR, eps=EPS)
    )
    has_seen_none = False
    for step in range(NUM_STEPS):
        ids, gradient = draw_slots(step), draw_gradient(step)
        blocks = np.split(ids, np.cumsum([spec.num_slots for spec in AVERAGED])[:-1], axis=1)
        has_seen_none |= bool((blocks[1] < 0).all(axis=1).any())
        theirs = torch.stack(
            [
                copy(
                    torch.from_numpy(block[block >= 0]),
                    torch.from_numpy(np.concatenate([[0], np.cumsum((block >= 0).sum(axis=1))[:-1]])),
                )
                for copy, block in zip(copies, blocks, strict=True)
            ],
            dim=1,
        )
        ours = tables.look_up(ids)
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-5)
        ours.backward(gradient)  # type: ignore[no-untyped-call]
        theirs.backward(gradient)  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    assert has_seen_none
    for spec, weight in zip(AVERAGED, weights, strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), weight.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_mean_of_no_value_is_zero_and_moves_nothing() -> None:
    tables = LocalTables([TableSpec("many", 7, 4, "mean")], DIM, TableOptimizer(kind="sgd", lr=LR), seed=0)
    before = tables.weights("many").copy()
    looked_up = tables.look_up(np.full((3, 4), -1))
    assert not looked_up.detach().any()
    looked_up.sum().backward()  # type: ignore[no-untyped-call]
    np.testing.assert_array_equal(tables.weights("many"), before)


def test_the_mean_of_equal_values_is_that_value() -> None:
    tables = LocalTables([TableSpec("many", 7, 4, "mean")], DIM, TableOptimizer(), seed=0)
    np.testing.assert_array_equal(tables.look_up(np.full((1, 4), 5)).detach()[0, 0], tables.weights("many")[5])
