"""Every table optimizer against `torch.optim` on dense copies of which only the touched rows may move, or a formula."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.errors import ConfigError
from recmill.settings.optimizers import TableOptimizer
from tests.embeddings.drawn import DIM, NUM_PLACES, NUM_STEPS, SPECS, draw_gradient, draw_ids, train

LR = 0.05
Build = Callable[[list[Tensor]], torch.optim.Optimizer]
Arrays = dict[str, NDArray[np.float64]]
MIXED_AND_DUPLICATES = pytest.mark.parametrize("all_same", [False, True], ids=["mixed", "duplicates"])


def build(**settings: Any) -> LocalTables:
    return LocalTables(SPECS, DIM, TableOptimizer(lr=LR, **settings), seed=0)


def step_touched_rows(optimizer: torch.optim.Optimizer, copies: list[Tensor], ids: NDArray[np.int64]) -> None:
    """A step of a dense optimizer, undone, its state included, for the rows that the batch did not touch."""
    before = [copy.detach().clone() for copy in copies]
    states = [{name: value.clone() for name, value in optimizer.state[copy].items()} for copy in copies]
    optimizer.step()
    for column, copy in enumerate(copies):
        untouched = np.setdiff1d(np.arange(len(copy)), ids[:, column])
        with torch.no_grad():
            copy[untouched] = before[column][untouched]
            for name, value in optimizer.state[copy].items():
                if value.shape == copy.shape:  # state that is made by the first step begins at 0
                    value[untouched] = states[column].get(name, torch.zeros_like(copy))[untouched]
    optimizer.zero_grad()


TORCH: list[tuple[str, dict[str, Any], Build]] = [
    ("momentum", {"kind": "sgd", "momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9)),
    (
        "momentum and decay",
        {"kind": "sgd", "momentum": 0.5, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, lr=LR, momentum=0.5, weight_decay=0.1),
    ),
    ("decay", {"kind": "sgd", "weight_decay": 0.1}, lambda p: torch.optim.SGD(p, lr=LR, weight_decay=0.1)),
    (
        "adagrad",
        {"kind": "adagrad", "eps": 1e-3, "initial_accumulator": 0.25, "weight_decay": 0.05},
        lambda p: torch.optim.Adagrad(p, lr=LR, eps=1e-3, initial_accumulator_value=0.25, weight_decay=0.05),
    ),
    ("adam", {"kind": "adam"}, lambda p: torch.optim.Adam(p, lr=LR)),
    (
        "adam and decay",
        {"kind": "adam", "beta1": 0.8, "beta2": 0.95, "eps": 1e-2, "weight_decay": 0.1},
        lambda p: torch.optim.Adam(p, lr=LR, betas=(0.8, 0.95), eps=1e-2, weight_decay=0.1),
    ),
]


@MIXED_AND_DUPLICATES
@pytest.mark.parametrize(("settings", "optimizer"), [case[1:] for case in TORCH], ids=[case[0] for case in TORCH])
def test_fifty_steps_equal_torch_on_the_touched_rows(
    settings: dict[str, Any], optimizer: Build, all_same: bool
) -> None:
    tables = build(**settings)
    copies = [torch.from_numpy(tables.weights(spec.name).copy()).requires_grad_() for spec in SPECS]
    theirs = optimizer(copies)
    train(tables, all_same=all_same)
    for step in range(NUM_STEPS):
        ids = draw_ids(step, all_same=all_same)
        rows = torch.stack([copy[torch.from_numpy(ids[:, i])] for i, copy in enumerate(copies)], dim=1)
        rows.backward(draw_gradient(step))  # type: ignore[no-untyped-call]
        step_touched_rows(theirs, copies, ids)
    for spec, copy in zip(SPECS, copies, strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), copy.detach().numpy(), rtol=1e-4, atol=5e-6)


@MIXED_AND_DUPLICATES
def test_adam_equals_torchs_sparse_adam(all_same: bool) -> None:
    tables = build(kind="adam", eps=1e-12)
    copies = [torch.from_numpy(tables.weights(spec.name).copy()).requires_grad_() for spec in SPECS]
    theirs = torch.optim.SparseAdam(copies, lr=LR, eps=1e-12)
    train(tables, all_same=all_same)
    for step in range(NUM_STEPS):
        ids, gradient = draw_ids(step, all_same=all_same), draw_gradient(step)
        for column, copy in enumerate(copies):
            rows = torch.nn.functional.embedding(torch.from_numpy(ids[:, column]), copy, sparse=True)
            rows.backward(gradient[:, column])  # type: ignore[no-untyped-call]
        theirs.step()  # type: ignore[no-untyped-call]
        theirs.zero_grad()
    for spec, copy in zip(SPECS, copies, strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), copy.detach().numpy(), rtol=1e-4, atol=5e-6)


def expected_by(
    move: Callable[[Arrays, NDArray[np.float64], int], None], first: Callable[[int], Arrays], *, all_same: bool
) -> list[Arrays]:
    """Weights and state of every table by a formula in double precision, applied to the rows each batch touched."""
    tables = [{"w": build(kind="sgd").weights(spec.name).astype(np.float64), **first(spec.num_rows)} for spec in SPECS]
    for step in range(NUM_STEPS):
        ids, gradient = draw_ids(step, all_same=all_same), draw_gradient(step).double().numpy()
        for column, arrays in enumerate(tables):
            total = np.zeros_like(arrays["w"])
            np.add.at(total, ids[:, column], gradient[:, column])
            touched = np.unique(ids[:, column])
            part = {name: array[touched] for name, array in arrays.items()}
            move(part, total[touched], step + 1)
            for name, array in arrays.items():
                array[touched] = part[name]
    return tables


@MIXED_AND_DUPLICATES
def test_rowwise_adam_equals_its_formula(all_same: bool) -> None:
    def move(row: Arrays, g: NDArray[np.float64], step: int) -> None:
        g = g + 0.1 * row["w"]
        row["m"] = 0.8 * row["m"] + 0.2 * g
        row["v"] = 0.95 * row["v"] + 0.05 * (g**2).mean(axis=1)
        scale = np.sqrt(row["v"] / (1 - 0.95**step)) + 1e-2
        row["w"] -= LR * row["m"] / (1 - 0.8**step) / scale[:, None]

    tables = build(kind="rowwise_adam", beta1=0.8, beta2=0.95, eps=1e-2, weight_decay=0.1)
    train(tables, all_same=all_same)
    first = expected_by(move, lambda rows: {"m": np.zeros((rows, DIM)), "v": np.zeros(rows)}, all_same=all_same)
    for spec, expected in zip(SPECS, first, strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), expected["w"], rtol=1e-4, atol=5e-6)
        np.testing.assert_allclose(tables.state(spec.name)[:, DIM], expected["v"], rtol=1e-4)


@MIXED_AND_DUPLICATES
@pytest.mark.parametrize(
    ("l1", "l2", "lr_power", "initial"), [(0.0, 0.0, -0.5, 0.0), (2.0, 0.5, -0.5, 0.1), (0.5, 0.1, -0.8, 0.3)]
)
def test_ftrl_equals_its_formula(l1: float, l2: float, lr_power: float, initial: float, all_same: bool) -> None:
    def move(row: Arrays, g: NDArray[np.float64], _step: int) -> None:
        grown = row["n"] + g**2
        sigma = (grown**-lr_power - row["n"] ** -lr_power) / LR
        row["z"] = row["z"] + g - sigma * row["w"]
        row["n"] = grown
        away = -(row["z"] - np.sign(row["z"]) * l1) / (grown**-lr_power / LR + l2)
        row["w"] = np.where(np.abs(row["z"]) <= l1, 0.0, away)

    tables = build(kind="ftrl", l1=l1, l2=l2, lr_power=lr_power, initial_accumulator=initial)
    train(tables, all_same=all_same)
    expected = expected_by(
        move, lambda rows: {"n": np.full((rows, DIM), initial), "z": np.zeros((rows, DIM))}, all_same=all_same
    )
    for spec, arrays in zip(SPECS, expected, strict=True):
        np.testing.assert_allclose(tables.weights(spec.name), arrays["w"], rtol=1e-3, atol=5e-6)
    assert l1 == 0 or any((tables.weights(spec.name) == 0).any() for spec in SPECS)


def test_ftrl_without_accumulator_starts_with_a_step_of_adagrad() -> None:
    ours, adagrad = build(kind="ftrl"), build(kind="adagrad", eps=0.0)
    for tables in (ours, adagrad):
        tables.look_up(draw_ids(0)).backward(draw_gradient(0))  # type: ignore[no-untyped-call]
    for spec in SPECS:
        np.testing.assert_allclose(ours.weights(spec.name), adagrad.weights(spec.name), rtol=1e-4, atol=1e-6)


def test_adam_counts_updates_and_its_count_matters() -> None:
    tables = build(kind="adam")
    train(tables, all_same=False)
    assert tables.num_updates == NUM_STEPS
    late = build(kind="adam")
    late.num_updates = NUM_STEPS
    before = late.weights("cat_1").copy()
    late.look_up(draw_ids(0)).backward(draw_gradient(0))  # type: ignore[no-untyped-call]
    move = np.abs(late.weights("cat_1") - before).max()
    expected = LR * (0.1 / (1 - 0.9**51)) / np.sqrt(0.001 / (1 - 0.999**51))  # of a first gradient, at update 51
    assert move == pytest.approx(expected, rel=1e-3)


# Gradients that come in parts are one update.


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"])
def test_held_parts_are_one_update(kind: str) -> None:
    whole, parts = build(kind=kind), build(kind=kind)
    for step in range(5):
        ids, gradient = draw_ids(step), draw_gradient(step)
        whole.look_up(ids).backward(gradient)  # type: ignore[no-untyped-call]
        parts.hold()
        for start in range(0, NUM_PLACES, 24):  # the last part is shorter
            stop = start + 24
            parts.look_up(ids[start:stop]).backward(gradient[start:stop])  # type: ignore[no-untyped-call]
        parts.apply_held()
    assert whole.num_updates == parts.num_updates == 5
    for spec in SPECS:
        np.testing.assert_array_equal(whole.weights(spec.name), parts.weights(spec.name))
        np.testing.assert_array_equal(whole.state(spec.name), parts.state(spec.name))


def test_dropped_parts_move_nothing() -> None:
    tables = build(kind="adam")
    before = tables.weights("cat_0").copy()
    tables.hold()
    tables.look_up(draw_ids(0)).backward(draw_gradient(0))  # type: ignore[no-untyped-call]
    assert [gradient.shape for gradient in tables.held_gradients()] == [(NUM_PLACES, len(SPECS), DIM)]
    tables.drop_held()
    assert tables.num_updates == 0
    assert not tables.state("cat_0").any()
    np.testing.assert_array_equal(tables.weights("cat_0"), before)


# Settings.


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"kind": "sgd", "eps": 1e-8},
            "tables.eps = 1e-08 does nothing for tables.kind = sgd; leave it out (sgd takes lr, momentum, weight_d",
        ),
        ({"kind": "adagrad", "momentum": 0.9}, "tables.momentum = 0.9 does nothing for tables.kind = adagrad"),
        ({"kind": "rowwise_adagrad", "beta1": 0.9}, "tables.beta1 = 0.9 does nothing"),
        ({"kind": "adam", "initial_accumulator": 0.1}, "tables.initial_accumulator = 0.1 does nothing"),
        ({"kind": "ftrl", "weight_decay": 0.1}, "(ftrl takes lr, l1, l2, lr_power, initial_accumulator)"),
    ],
)
def test_a_number_that_would_do_nothing_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TableOptimizer(**settings)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "width"),
    [
        ({"kind": "sgd"}, 0),
        ({"kind": "sgd", "momentum": 0.5}, 8),
        ({"kind": "adagrad"}, 8),
        ({"kind": "rowwise_adagrad"}, 1),
        ({"kind": "adam"}, 16),
        ({"kind": "rowwise_adam"}, 9),
        ({"kind": "ftrl"}, 16),
    ],
)
def test_state_is_no_wider_than_the_rule_needs(settings: dict[str, Any], width: int) -> None:
    tables = LocalTables([TableSpec("one", 3)], 8, TableOptimizer(**settings), seed=0)
    assert tables.state("one").shape == (3, width)
