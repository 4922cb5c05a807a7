"""Samples per second of training a click model on this CPU, four ways that take turns:

raw      recmill from raw text: parsed, encoded, shuffled and batched while it trains
memory   recmill from batches that lie ready in memory
plain    the same model in plain PyTorch with nn.EmbeddingBag(sparse=True), from batches in memory: DLRM and DCN v2 only
dense    recmill's layers alone, on embeddings that are given: what no engine for tables can beat

All use the same optimizer. The dense contender computes the gradient of the embeddings too, as every engine needs it.
The raw contender opens its stream anew in every round and is timed from the moment its first blocks are parsed, over
at least one full turn of its lanes, so that it parses as many rows as it trains on. The contenders are closer to each
other than a shared machine is to itself from one second to the next: they take their steps in turn.

With --vocabulary only two take turns: raw text encoded with a vocabulary on the fly, and the same rows prepared as npy.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.plain_dcn import PlainDcn
from benchmarks.plain_dlrm import PlainDlrm, build_optimizers
from benchmarks.report import Report, add_common_options, median_ratio, share_turns, take_turns
from recmill.data.batch import Batch
from recmill.data.logs.opening import open_splits
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.synthetic.clicks import write_criteo
from recmill.recipes.resolve import config as config_of
from recmill.settings.click_models import CONFIGS
from recmill.settings.clicks import TrainConfig
from recmill.settings.synthetic import SynthSpec
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import ClickState, take_step

WARM_STEPS = 3
# Rows of a Criteo block of 256 KiB: how many rows a lane hands out before it opens the next block.
BLOCK_ROWS = 1100
PLAIN: dict[str, type[Any]] = {"dlrm": PlainDlrm, "dcn": PlainDcn}
Step = Callable[[int], object]
# The published rank, and for embeddings of 16 about the quarter of the width that keeps a full matrix's accuracy.
CROSS_RANK = {"small": 128, "mlperf": 512}


@dataclass(frozen=True)
class Bench:
    """One model, the data to train it on, and how long a turn is."""

    parts: ClickState
    inputs: Inputs
    batches: list[Batch]
    num_steps: int

    def time_stream(self) -> float:
        """Seconds for a turn from the inputs."""
        with self.inputs.open_training(None) as stream:
            for i in range(WARM_STEPS):
                take_step(self.parts, next(stream), i)
            began = time.perf_counter()
            for i in range(self.num_steps):
                take_step(self.parts, next(stream), i)
            return time.perf_counter() - began

    def time_all(self, rivals: dict[str, Step]) -> dict[str, float]:
        """Seconds for a turn from raw text, one from memory, one of the layers alone and one of each rival."""
        with self.inputs.open_training(None) as stream:
            source = itertools.cycle(self.batches)
            steps: dict[str, Step] = {
                "raw": lambda step: take_step(self.parts, next(stream), step),
                "memory": lambda step: take_step(self.parts, next(source), step),
                "dense": self._layers_alone(),
                **rivals,
            }
            taken = dict.fromkeys(steps, 0.0)
            for i in range(WARM_STEPS + self.num_steps):
                for name in list(steps)[:: 1 if i % 2 == 0 else -1]:
                    began = time.perf_counter()
                    steps[name](i)
                    taken[name] += (time.perf_counter() - began) if i >= WARM_STEPS else 0.0
        return taken

    def plain_steps(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Step:
        """A step of the rival."""
        source = itertools.cycle(self.batches)

        def step(_step: int) -> None:
            columns = next(source).columns
            logits = model(torch.from_numpy(columns.dense), torch.from_numpy(columns.ids))
            _loss(logits, columns.labels).backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        return step

    def _layers_alone(self) -> Step:
        """A step of the layers on embeddings that are given."""
        source = itertools.cycle(self.batches)
        emb_BFD = torch.randn(*self.batches[0].columns.ids.shape, self.parts.tables.dim).mul_(0.01).requires_grad_()

        def step(_step: int) -> None:
            columns = next(source).columns
            logits = self.parts.model(torch.from_numpy(columns.dense), emb_BFD)
            _loss(logits, columns.labels).backward()  # type: ignore[no-untyped-call]
            self.parts.optimizer.step()
            self.parts.optimizer.zero_grad(set_to_none=True)
            emb_BFD.grad = None

        return step


def _loss(logits: Tensor, labels: object) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.as_tensor(labels))


def measure(bench: Bench, *, rounds: int, model: str) -> Report:
    """All four, turn by turn."""
    config = bench.parts.config
    rivals = dict[str, Step]()
    if build_plain := PLAIN.get(config.model.kind):
        plain = build_plain(config.model, len(config.data.schema_of_rows.dense_names), config.data.num_table_rows)
        rivals["plain"] = bench.plain_steps(plain, build_optimizers(plain, config.dense.kind, config.dense.lr))
    timings = share_turns([lambda: bench.time_all(rivals)], rounds=rounds)
    report = Report("train")
    for name, timing in timings.items():
        report.figures[f"{name} samples/s"] = bench.num_steps * config.data.global_batch / timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    report.ratios = {
        "raw/memory": median_ratio(timings, "raw", "memory"),
        **{f"recmill/{rival}": median_ratio(timings, "memory", rival) for rival in rivals},
        "memory/dense": median_ratio(timings, "memory", "dense"),
    }
    report.notes = {
        "model": model,
        "arch": config.model.kind,
        "optimizer": config.tables.kind,
        "table rows": sum(config.data.num_table_rows),
        "batch": config.data.global_batch,
        "steps": bench.num_steps,
        "rounds": rounds,
    }
    return report


def measure_prepared(config: TrainConfig, scratch: Path, *, rounds: int) -> Report:
    """Raw text with a vocabulary against prepared rows, turn by turn on one model."""
    out_dir = scratch / "prepared"
    with closing(open_splits(config.data)) as splits:
        prepare(PrepareJob(splits, config.data.schema_of_rows, out_dir))
    raw_config = config_of(config, vocabulary=out_dir)
    prepared_config = config_of(config, data=out_dir)
    assert isinstance(raw_config, TrainConfig)
    assert isinstance(prepared_config, TrainConfig)
    parts = assemble(raw_config)
    num_steps = -(-config.data.num_lanes * BLOCK_ROWS // config.data.global_batch)
    with Inputs(raw_config) as raw, Inputs(prepared_config) as prepared:
        contenders = {
            "raw": Bench(parts, raw, [], num_steps).time_stream,
            "prepared": Bench(parts, prepared, [], num_steps).time_stream,
        }
        timings = take_turns(contenders, rounds=rounds)
    report = Report("train")
    for name, timing in timings.items():
        report.figures[f"{name} samples/s"] = num_steps * config.data.global_batch / timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    report.ratios["raw/prepared"] = median_ratio(timings, "raw", "prepared")
    report.notes = {"table rows": sum(raw_config.data.num_table_rows), "steps": num_steps, "rounds": rounds}
    return report


def build_config(model: str, arch: str, data_dir: Path, optimizer: str) -> TrainConfig:
    """The recipe of that name, endless, with one optimizer for all contenders."""
    changes = [f"data.dir={str(data_dir)!r}", f"tables.kind={optimizer}", f"dense.kind={optimizer}"]
    changes += ["tables.lr=0.01", "dense.lr=0.01", "stop.max_epochs=0", f"model.kind={arch}"]
    changes += [f"model.cross_rank={CROSS_RANK[model]}"] if arch == "dcn" else []
    settings = config_of(model, overrides=changes)
    assert isinstance(settings, TrainConfig)
    return settings


def main(argv: Sequence[str]) -> int:
    """`recmill bench train`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=15)
    parser.add_argument("--model", choices=("small", "mlperf"), default="small")
    parser.add_argument("--arch", choices=tuple(CONFIGS), default="dlrm", help="the kind of model (dlrm)")
    parser.add_argument(
        "--optimizer", choices=("adagrad", "sgd"), default="adagrad", help="of all contenders (adagrad)"
    )
    parser.add_argument("--rows", type=int, default=300_000, help="rows of the synthetic log (300,000)")
    parser.add_argument("--vocabulary", action="store_true", help="raw text with a vocabulary against prepared rows")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch) / "data"
        write_criteo(SynthSpec(rows=args.rows, days=2, seed=0, scale=0.02), data_dir)
        config = build_config(args.model, args.arch, data_dir, args.optimizer)
        if args.vocabulary:
            measure_prepared(config, Path(scratch), rounds=args.rounds).show(as_json=args.json)
            return 0
        with Inputs(config) as inputs:
            with inputs.open_training(None) as stream:
                batches = list(itertools.islice(stream, 16))
            turn_rows = config.data.num_lanes * BLOCK_ROWS
            bench = Bench(assemble(config), inputs, batches, num_steps=-(-turn_rows // config.data.global_batch))
            measure(bench, rounds=args.rounds, model=args.model).show(as_json=args.json)
    return 0
