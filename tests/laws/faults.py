"""Law *fault*: when any file operation fails or the process dies at it, nothing that was complete is lost.

A `Scenario` is a command that writes. Each of its operations on files fails once, in each of several ways. The command
then ends with a message (or is killed), and the command that is to go on afterwards ends with the same bytes as if
nothing had happened.
"""

import errno
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.laws.damage import digest_of, tell_progress
from tests.laws.forks import Ended, Fault, ForkServer

WAYS = (
    ("no space", Fault("", how="fail", error=errno.ENOSPC)),
    ("no space from then on", Fault("", how="fail", error=errno.ENOSPC, is_lasting=True)),
    ("input/output error", Fault("", how="fail", error=errno.EIO)),
    ("no permission", Fault("", how="fail", error=errno.EACCES)),
    ("half written", Fault("", how="short", error=errno.ENOSPC)),
    ("killed", Fault("", how="kill")),
)


@dataclass(frozen=True)
class Scenario:
    """What is there before, a command that writes into it, the one that goes on after a failure, and the result."""

    name: str
    before: Path | None  # is copied to {dir}
    words: tuple[str, ...]
    again: tuple[str, ...]
    result: str


def build_shim(scratch: Path) -> Path:
    """The library that makes operations fail."""
    source, library = Path(__file__).with_suffix(".c"), scratch / "faults.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


class FaultTrial:
    """One scenario, tried many times in one place."""

    def __init__(self, scenario: Scenario, server: ForkServer, scratch: Path) -> None:
        self._scenario, self._server = scenario, server
        self._place = scratch / "place"
        ended, self._intact = self._run(scenario.words, Fault(str(self._place)))
        if ended.status != 0:
            raise RuntimeError(f"{scenario.name} without a fault: {ended.describe()}")
        self.num_operations = ended.num_operations

    def violations(self, numbers: Sequence[int]) -> Iterator[str]:
        """What went wrong when these operations failed, in every way."""
        for done, number in enumerate(numbers):
            tell_progress(f"faults, {self._scenario.name}: {done:,} of {len(numbers):,} operations", done, every=10)
            for name, way in WAYS:
                fault = Fault(str(self._place), number, way.how, way.error, way.is_lasting)
                if complaint := self._try(fault):
                    yield f"{self._scenario.name}, operation {number} of {self.num_operations}, {name}: {complaint}"

    def _try(self, fault: Fault) -> str:
        ended, result = self._run(self._scenario.words, fault, keep=True)
        if ended.status == 0:
            return "" if result == self._intact else "another result, and status 0"
        if ended.status == -9 and fault.how != "kill":
            return "killed"
        if ended.status != -9 and not _is_told(ended):
            return ended.describe()
        was_complete = result == self._intact  # it was ended while it cleaned up
        again, result = self._run(self._scenario.again, None, go_on=True)
        if again.is_rejected and was_complete and ("is not empty" in again.err or "is there already" in again.err):
            return ""
        if again.status != 0:
            return f"cannot go on after {ended.describe()!r}: {again.describe()}"
        return "" if result == self._intact else f"another result after {ended.describe()!r}"

    def _run(
        self, words: Sequence[str], fault: Fault | None, *, keep: bool = False, go_on: bool = False
    ) -> tuple[Ended, str]:
        where = self._place / "dir"
        if not go_on:
            shutil.rmtree(self._place, ignore_errors=True)
            self._place.mkdir()
            if self._scenario.before is not None:
                shutil.copytree(self._scenario.before, where)
        ended = self._server.run(*(word.format(dir=where) for word in words), fault=fault)
        result = digest_of(Path(self._scenario.result.format(dir=where)))
        if not keep:
            shutil.rmtree(self._place)
        return ended, result


def _is_told(ended: Ended) -> bool:
    """Whether it ended with a message for a person."""
    return ended.status in (1, 2) and "Traceback" not in ended.err and "internal error" not in ended.err


def some_numbers(num_operations: int, num_wanted: int, seed: int) -> list[int]:
    """The first, the last and some others of the operations."""
    all_numbers = range(1, num_operations + 1)
    if len(all_numbers) <= num_wanted:
        return list(all_numbers)
    drawn = random.Random(seed).sample(all_numbers, num_wanted - 2)
    return sorted({1, num_operations, *drawn})
