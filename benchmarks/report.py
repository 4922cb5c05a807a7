"""What every benchmark shares: contenders that take turns, medians with their spread, one JSON object at the end."""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from recmill.observe.environment import describe_machine, git_commit


@dataclass(frozen=True)
class Timing:
    """The seconds a contender took, round by round."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle round."""
        return statistics.median(self.seconds)

    @property
    def spread_frac(self) -> float:
        """The distance between the slowest and the fastest round, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median_s


@dataclass
class Report:
    """The figures of a benchmark and the ratios its bars are about."""

    bench: str
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "bench": self.bench,
            "figures": {name: _rounded(value) for name, value in self.figures.items()},
            "ratios": {name: _rounded(value) for name, value in self.ratios.items()},
            "notes": self.notes,
            "machine": describe_machine(),
            "commit": git_commit(),
        }

    def show(self, *, as_json: bool) -> None:
        """One JSON object on the last line, or a table."""
        if as_json:
            print(json.dumps(self.as_dict()))
            return
        table = Table(box=box.SIMPLE_HEAD, title=f"bench {self.bench}")
        table.add_column("figure")
        table.add_column("value", justify="right")
        for name, value in self.figures.items():
            table.add_row(name, f"{_rounded(value):,}")
        for name, value in self.ratios.items():
            table.add_row(f"[bold]{name}", f"[bold]{value:.3g} ×")
        Console().print(table)
        for name, note in self.notes.items():
            print(f"{name}: {note}")


def take_turns(turns: Mapping[str, Callable[[], float]], *, rounds: int) -> dict[str, Timing]:
    """The seconds of each contender's turns; the order is turned round every time, so that drift favours nobody."""
    return share_turns([partial(_alone, name, turn) for name, turn in turns.items()], rounds=rounds)


def share_turns(turns: Sequence[Callable[[], Mapping[str, float]]], *, rounds: int) -> dict[str, Timing]:
    """As `take_turns`, where a turn may be one of several contenders at once and gives the seconds of each."""
    seconds: dict[str, list[float]] = {}
    for i in range(rounds):
        for turn in turns[:: 1 if i % 2 == 0 else -1]:
            for name, taken in turn().items():
                seconds.setdefault(name, []).append(taken)
    return {name: Timing(tuple(taken)) for name, taken in seconds.items()}


def _alone(name: str, turn: Callable[[], float]) -> dict[str, float]:
    return {name: turn()}


def alternate(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int, clean: Callable[[], object] = bool
) -> dict[str, Timing]:
    """Time whole calls of the contenders turn by turn, after a call of each that does not count.

    `clean` is called before each. What the one before has written is on the disk when a turn begins: nobody waits for
    another's pages.
    """

    def turn(work: Callable[[], object]) -> float:
        clean()
        os.sync()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    for work in contenders.values():
        clean()
        work()
    return take_turns({name: partial(turn, work) for name, work in contenders.items()}, rounds=rounds)


def median_ratio(timings: Mapping[str, Timing], fast: str, slow: str) -> float:
    """How many times as fast the first is as the second: the median over the rounds of each round's own ratio."""
    pairs = zip(timings[slow].seconds, timings[fast].seconds, strict=True)
    return statistics.median(slow_s / fast_s for slow_s, fast_s in pairs)


def add_common_options(parser: argparse.ArgumentParser, *, rounds: int) -> None:
    """The options every benchmark has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"timed rounds of each contender ({rounds})")


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))
