"""Look-up and update of 26 tables: recmill's kernels against FBGEMM's on this CPU, same ids, same gradients.

One step is a forward pass, and a backward pass that sums duplicate ids and applies row-wise Adagrad. Table sizes are
the published profile; ids are skewed like click logs. Both sides start from the same weights and are compared first.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.report import Report, add_common_options, alternate, median_ratio
from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.errors import MissingExtra
from recmill.settings.criteo import capped_table_rows
from recmill.settings.optimizers import TableOptimizer
from recmill.training.threads import use_threads

LR, EPS = 0.01, 1e-8
STEPS_PER_TURN = 10


@dataclass(frozen=True)
class Case:
    """A dimension, a batch, and the rows of all tables together."""

    dim: int
    num_places: int
    total_rows: int


CASES = (Case(16, 2048, 4_000_000), Case(64, 2048, 2_000_000), Case(128, 4096, 1_000_000))


def draw_ids(table_rows: Sequence[int], num_places: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ids (B, F): a few rows of every table take most of the places."""
    ids = [np.minimum((rows * rng.random(num_places) ** 4).astype(np.int64), rows - 1) for rows in table_rows]
    return np.stack(ids, axis=1)


def build_fbgemm(tables: LocalTables) -> Callable[[Tensor, Tensor], Tensor]:
    """FBGEMM's fused tables with the same weights: indices and offsets → (B, F·D)."""
    try:
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )
    except ImportError as error:
        raise MissingExtra(
            f"the rival of this benchmark, FBGEMM, is not installed ({error}): make install-full"
        ) from None
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(spec.num_rows, tables.dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for spec in tables.specs],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=LR,
        eps=EPS,
    )
    for spec, weights in zip(tables.specs, module.split_embedding_weights(), strict=True):
        weights.data.copy_(torch.from_numpy(tables.weights(spec.name)))
    return module  # type: ignore[no-any-return]


def measure_case(case: Case, *, rounds: int) -> tuple[dict[str, float], float]:
    """Milliseconds per step of both, and how many times as fast recmill is."""
    rng = np.random.default_rng(0)
    table_rows = capped_table_rows(case.total_rows)
    specs = [TableSpec(f"cat_{i}", rows) for i, rows in enumerate(table_rows)]
    tables = LocalTables(specs, case.dim, TableOptimizer(kind="rowwise_adagrad", lr=LR, eps=EPS), seed=0)
    fbgemm = build_fbgemm(tables)
    batches = [draw_ids(table_rows, case.num_places, rng) for _ in range(STEPS_PER_TURN)]
    gradient_BFD = torch.from_numpy(rng.standard_normal((case.num_places, len(specs), case.dim)).astype(np.float32))
    gradient = gradient_BFD.reshape(case.num_places, -1)
    # FBGEMM takes one-hot ids table by table
    indices = [torch.from_numpy(np.ascontiguousarray(ids.T).ravel()) for ids in batches]
    offsets = torch.arange(indices[0].numel() + 1)

    def step_recmill() -> None:
        for ids in batches:
            tables.look_up(ids).backward(gradient_BFD)  # type: ignore[no-untyped-call]

    def step_fbgemm() -> None:
        for ids in indices:
            fbgemm(ids, offsets).backward(gradient)  # type: ignore[no-untyped-call]

    ours = tables.look_up(batches[0]).detach().reshape(case.num_places, -1)
    torch.testing.assert_close(ours, fbgemm(indices[0], offsets).detach())
    timings = alternate({"recmill": step_recmill, "fbgemm": step_fbgemm}, rounds=rounds)
    figures = {name: timing.median_s / STEPS_PER_TURN * 1e3 for name, timing in timings.items()}
    return figures, median_ratio(timings, "recmill", "fbgemm")


def main(argv: Sequence[str]) -> int:
    """`recmill bench embeddings`."""
    parser = argparse.ArgumentParser(prog="recmill bench embeddings", description=__doc__)
    add_common_options(parser, rounds=11)
    args = parser.parse_args(argv)
    report = Report("embeddings", notes={"threads": use_threads(None), "rounds": args.rounds})
    for case in CASES:
        figures, ratio = measure_case(case, rounds=args.rounds)
        for name, milliseconds in figures.items():
            report.figures[f"{name} ms@{case.dim}"] = milliseconds
        report.ratios[f"recmill/fbgemm@{case.dim}"] = ratio
    report.show(as_json=args.json)
    return 0
