"""Tables in tiers against the same tables in memory, and the misses of the cache against other rules.

memory     recmill with all rows in memory, trained from raw text
tiered@B   the same with a cache of B of all rows' bytes over files that are read past the page cache

Every row of all tables exists in the files before the first step, so that none is made up for want of a read. The
caches are warm: their first batches are looked up and marked as changed, and not trained on. The contenders take their
steps in turn, on the same batches, and are compared bit by bit at the end.

rivals     the trainer over RocksDB and over LMDB in the place of our files (--part rivals; pip install '.[bench]')
misses     rows of batches that had to be read, against what the least recently used row's leaving would have cost, and
           against Belady's optimum, which knows the whole future; all from the same state of the cache
memory     peak resident memory of a process that trains, against one whose tables have two rows each (--part memory)
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.cache_rules import count_belady, count_lru
from benchmarks.report import Report, Timing, median_ratio
from recmill.data.batch import Batch
from recmill.data.stream.stream import Stream
from recmill.data.synthetic.clicks import write_criteo
from recmill.embeddings.store.cache import RowCache
from recmill.embeddings.tiered import TieredTables
from recmill.recipes.resolve import config as config_of
from recmill.settings.clicks import TrainConfig
from recmill.settings.synthetic import SynthSpec
from recmill.training.click.assemble import assemble, build_tables
from recmill.training.click.inputs import Inputs
from recmill.training.click.look_ahead import LookAhead
from recmill.training.click.step import ClickState, take_step

if TYPE_CHECKING:
    from benchmarks.tier_rivals import KeyedRows

CHECKOUT = Path(__file__).parents[1]
_PORTION_ROWS = 1 << 16
_BATCHES_BYTES = 8 << 20  # room for the rows of the few batches that are under way


def row_bytes(config: TrainConfig) -> int:
    """Of all rows of all tables, with what the optimizer keeps for them."""
    dim = config.model.table_dim
    return 4 * (dim + config.tables.state_width(dim)) * sum(config.data.num_table_rows)


def with_budget(config: TrainConfig, budget: float) -> TrainConfig:
    """The same settings with a cache of a share of the bytes of all rows."""
    store = {"kind": "cached_ssd", "cache_memory": int(row_bytes(config) * budget)}
    return config.with_({"store": store})


def write_all_rows(tables: TieredTables) -> None:
    """Have every row outside of the cache, with its first value."""
    rows = np.arange(int(tables.kind.bounds.first_row[-1]))
    for first in range(0, len(rows), _PORTION_ROWS):
        some = rows[first : first + _PORTION_ROWS]
        tables.cache.write_rows(some, tables.cache.read_aside(some))


@dataclass
class Contender:
    """A model, the batches it is trained on, and how long its steps took."""

    state: ClickState
    batches: Iterator[Batch]
    step: int = 0

    def take(self, num_steps: int) -> float:
        """Seconds of so many steps, reading included."""
        began = time.perf_counter()
        for _ in range(num_steps):
            take_step(self.state, next(self.batches), self.step)
            self.step += 1
        return time.perf_counter() - began


def warm(tables: TieredTables, batches: Iterator[Batch], num_batches: int) -> None:
    """Look up the rows of some batches as training would, and say that they have changed."""
    for _ in range(num_batches):
        next(batches)
        assert tables.current is not None
        tables.cache.note_changes(tables.current.slots, 0)


@contextmanager
def opened_contender(
    config: TrainConfig,
    inputs: Inputs,
    store_dir: Path,
    num_warm: int,
    alter: Callable[[TieredTables], None] | None = None,
) -> Iterator[Contender]:
    """A model in memory or in tiers, at the batch behind those it was warmed up with."""
    with ExitStack() as stack:
        state = assemble(config)
        stream = stack.enter_context(inputs.open_training(None))
        if not isinstance(state.tables, TieredTables):
            for _ in range(num_warm):
                next(stream)
            yield Contender(state, stream)
            return
        stack.callback(state.tables.close)
        if alter is not None:
            alter(state.tables)
        state.tables.write_into(store_dir)
        write_all_rows(state.tables)
        batches = stack.enter_context(LookAhead(stream, state.tables))
        warm(state.tables, batches, num_warm)
        yield Contender(state, batches)


def measure_speed(config: TrainConfig, budgets: Sequence[float], scratch: Path, args: argparse.Namespace) -> Report:
    """Samples per second, turn by turn, and whether all contenders hold the same bytes at the end."""
    report = Report("tiers")
    names = {"memory": config, **{f"tiered@{budget:.0%}": with_budget(config, budget) for budget in budgets}}
    with Inputs(config) as inputs, ExitStack() as stack:
        contenders = {
            name: stack.enter_context(opened_contender(each, inputs, scratch / name, args.warm))
            for name, each in names.items()
        }
        for contender in contenders.values():
            contender.take(args.steps)  # kernels and allocations
        before = {name: _counts(contender.state) for name, contender in contenders.items()}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(args.rounds):
            for name in list(names)[:: 1 if turn % 2 == 0 else -1]:
                seconds[name].append(contenders[name].take(args.steps))
        timings = {name: Timing(tuple(taken)) for name, taken in seconds.items()}
        for name, timing in timings.items():
            report.figures[f"{name} samples/s"] = args.steps * config.data.global_batch / timing.median_s
        num_batches = args.steps * args.rounds
        for name in list(names)[1:]:
            counts = {key: after - before[name][key] for key, after in _counts(contenders[name].state).items()}
            report.figures |= {f"{name} {key}/batch": value / num_batches for key, value in counts.items()}
            report.ratios[f"{name}/memory"] = median_ratio(timings, name, "memory")
        report.figures["tables that differ"] = _count_differing([each.state for each in contenders.values()])
    return report


def _counts(state: ClickState) -> dict[str, float]:
    tables = state.tables
    if not isinstance(tables, TieredTables):
        return {}
    uses, traffic = tables.cache.uses, tables.cache.backing.traffic
    return {
        "rows": float(uses.distinct.sum()),
        "rows read": float(uses.read.sum()),
        "KiB read": traffic.bytes_read / 1024,
        "KiB written": traffic.bytes_written / 1024,
        "ms waited": 1000 * tables.waited_s,
    }


def _count_differing(states: Sequence[ClickState]) -> int:
    """Tables whose weights or state are not the same bytes in all contenders."""
    first, *others = [state.tables for state in states]
    return sum(
        other.weights(spec.name).tobytes() != first.weights(spec.name).tobytes()
        or other.state(spec.name).tobytes() != first.state(spec.name).tobytes()
        for spec in first.specs
        for other in others
    )


def measure_rivals(config: TrainConfig, budget: float, scratch: Path, args: argparse.Namespace) -> Report:
    """The same trainer over our files, over RocksDB and over LMDB, turn by turn.

    Both are tried with a cache of their own, RocksDB's of the same budget, and behind ours. LMDB has the page cache
    alone, which is emptied before each step: it would hold the whole file, and nothing would be read.
    """
    from benchmarks.tier_rivals import KeyedRows, LmdbRows, RocksRows  # not installed by everybody

    settings, report = with_budget(config, budget), Report("tiers")
    cache_bytes = settings.store.cache_memory
    slots_of_batches = config.with_({"store": {"kind": "cached_ssd", "cache_memory": _BATCHES_BYTES}})
    rivals: dict[str, tuple[TrainConfig, type[KeyedRows] | None, int]] = {
        "recmill": (settings, None, 0),
        "rocksdb": (slots_of_batches, RocksRows, cache_bytes),
        "lmdb": (slots_of_batches, LmdbRows, cache_bytes),
        "rocksdb behind our cache": (settings, RocksRows, _BATCHES_BYTES),
        "lmdb behind our cache": (settings, LmdbRows, 0),
    }
    with Inputs(config) as inputs, ExitStack() as stack:
        contenders, stores = dict[str, Contender](), dict[str, KeyedRows]()
        for name, (each, rival, num_bytes) in rivals.items():
            make = partial(_over_rival, rival, scratch / name, num_bytes, stores, name) if rival else None
            opened = opened_contender(each, inputs, scratch / f"{name}-log", args.warm, make)
            contenders[name] = stack.enter_context(opened)
        seconds: dict[str, list[float]] = {name: [] for name in rivals}
        for turn in range(-1, args.rounds):
            for name in list(rivals)[:: 1 if turn % 2 == 0 else -1]:
                taken = 0.0
                for _ in range(args.steps):
                    if name in stores:
                        stores[name].forget_pages()
                    taken += contenders[name].take(1)
                if turn >= 0:
                    seconds[name].append(taken)
        timings = {name: Timing(tuple(taken)) for name, taken in seconds.items()}
        for name, timing in timings.items():
            report.figures[f"{name} samples/s"] = args.steps * config.data.global_batch / timing.median_s
        report.ratios = {f"recmill/{name}": median_ratio(timings, "recmill", name) for name in list(rivals)[1:]}
        report.figures["tables that differ"] = _count_differing([each.state for each in contenders.values()])
    return report


def _over_rival(
    rival: Callable[..., "KeyedRows"],
    path: Path,
    cache_bytes: int,
    stores: dict[str, "KeyedRows"],
    name: str,
    tables: TieredTables,
) -> None:
    """Put a rival in the place of our files of rows."""
    stores[name] = rival(tables.kind.layout, path, cache_bytes)
    tables.cache.backing.close()
    tables.log, tables.cache.backing = None, stores[name]


def measure_misses(config: TrainConfig, budget: float, scratch: Path, args: argparse.Namespace) -> Report:
    """Rows that have to be read, by our cache and by two other rules, over the second half of the batches."""
    settings = with_budget(config, budget)
    tables = build_tables(settings)
    assert isinstance(tables, TieredTables)
    tables.write_into(scratch / "misses")
    write_all_rows(tables)
    trace = list[NDArray[np.int32]]()
    with Inputs(config) as inputs, inputs.open_training(None) as stream:
        batches = LookAhead(_Traced(stream, tables.cache, trace), tables)  # type: ignore[arg-type]
        warm(tables, batches, args.batches // 2)
        before = int(tables.cache.uses.read.sum())
        warm(tables, batches, args.batches // 2)
        ours = int(tables.cache.uses.read.sum()) - before
    trace = trace[: args.batches]
    num_slots, num_rows = tables.cache.num_slots, len(tables.cache.residency.where)
    tables.close()
    lru, belady = (rule(trace, num_slots, num_rows, args.batches // 2) for rule in (count_lru, count_belady))
    report, half = Report("tiers"), args.batches // 2
    report.figures = {"misses/batch": ours / half, "LRU misses/batch": lru / half, "Belady misses/batch": belady / half}
    report.figures["slots"] = num_slots
    report.ratios = {"misses/LRU": ours / lru, "misses/Belady": ours / belady}
    return report


class _Traced:
    """A stream whose batches' rows are noted, each once a batch."""

    def __init__(self, stream: Stream, cache: RowCache, trace: list[NDArray[np.int32]]) -> None:
        self._stream, self._cache, self._trace = stream, cache, trace
        self.trailing_skipped = 0

    def __next__(self) -> Batch:
        batch = next(self._stream)
        rows = np.unique(self._cache.rows_of(batch.columns.ids))
        self._trace.append(rows[rows >= 0].astype(np.int32))
        return batch


def measure_memory(config: TrainConfig, budget: float, scratch: Path, args: argparse.Namespace) -> Report:
    """Peak resident memory of processes that train, one with tiers and one with tables of two rows."""
    report = Report("tiers")
    tiny = config.with_({"data": {"table_rows": [2] * len(config.data.num_table_rows), "max_rows_per_table": None}})
    peaks = dict[str, int]()
    for name, settings in (("tiered", with_budget(config, budget)), ("without tables", tiny)):
        path = scratch / f"{name}.json"
        path.write_text(json.dumps(settings.to_tree()))
        words = [sys.executable, "-m", "benchmarks.tiers", "--child", str(path)]
        words += ["--steps", str(args.steps * args.rounds)]
        done = subprocess.run(words, cwd=CHECKOUT, check=True, capture_output=True, text=True)
        peaks[name] = int(done.stdout.split()[-1])
    keys = 16 * sum(config.data.num_table_rows)
    cache = int(row_bytes(config) * budget)
    allowed = 1.2 * cache + keys + peaks["without tables"]
    report.figures = {f"{name} peak MiB": peak / 2**20 for name, peak in peaks.items()}
    report.figures |= {"budget MiB": cache / 2**20, "keys MiB": keys / 2**20}
    report.ratios["peak/allowed"] = peaks["tiered"] / allowed
    return report


def run_child(path: Path, num_steps: int) -> None:
    """Train a while; print the peak of resident memory."""
    from recmill.settings.tree import from_tree

    config = from_tree(TrainConfig, json.loads(path.read_text()))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=path.parent)))
        inputs = stack.enter_context(Inputs(config))
        contender = stack.enter_context(opened_contender(config, inputs, scratch / "store", 0))
        contender.take(num_steps)
        if isinstance(contender.state.tables, TieredTables):
            contender.state.tables.finished_files()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def build_config(model: str, data_dir: Path, optimizer: str) -> TrainConfig:
    """A recipe, endless, on the synthetic log."""
    changes = [f"data.dir={str(data_dir)!r}", "stop.max_epochs=0", f"tables.kind={optimizer}", "tables.lr=0.01"]
    settings = config_of(model, overrides=changes)
    assert isinstance(settings, TrainConfig)
    return settings


def main(argv: Sequence[str]) -> int:
    """`recmill bench tiers`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench tiers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument(
        "--part", choices=("speed", "misses", "memory", "rivals"), default="speed", help="what to measure (speed)"
    )
    parser.add_argument("--model", choices=("small", "mlperf"), default="small")
    parser.add_argument("--optimizer", default="rowwise_adagrad", help="of the tables (rowwise_adagrad)")
    parser.add_argument("--budgets", default="0.1,0.01", help="caches, as shares of all rows' bytes (0.1,0.01)")
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the synthetic log (3,000,000)")
    parser.add_argument("--data", type=Path, help="such a log that is there already")
    parser.add_argument("--warm", type=int, default=1000, help="batches that warm the caches up: an epoch (1,000)")
    parser.add_argument("--batches", type=int, default=2000, help="of the part misses (2,000)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender (15)")
    parser.add_argument("--steps", type=int, default=20, help="steps of a turn (20)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        run_child(args.child, args.steps)
        return 0
    budgets = [float(budget) for budget in args.budgets.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = args.data or Path(scratch) / "data"
        if not args.data:
            write_criteo(SynthSpec(rows=args.rows, days=3, seed=7, scale=0.02), data_dir)
        config = build_config(args.model, data_dir, args.optimizer)
        if args.part == "speed":
            report = measure_speed(config, budgets, Path(scratch), args)
        else:
            parts = {"misses": measure_misses, "memory": measure_memory, "rivals": measure_rivals}
            report = parts[args.part](config, budgets[0], Path(scratch), args)
    report.notes = {
        "part": args.part,
        "model": args.model,
        "optimizer": args.optimizer,
        "budgets": args.budgets,
        "table rows": sum(config.data.num_table_rows),
        "log rows": args.rows,
    }
    report.show(as_json=args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
