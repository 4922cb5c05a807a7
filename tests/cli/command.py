"""The command line, called in this process."""

from collections.abc import Callable
from dataclasses import dataclass

TINY = ("--set", "data.table_rows=" + str([50] * 26), "--set", "data.global_batch=100")


@dataclass(frozen=True)
class Outcome:
    """What a command returned and printed."""

    status: int
    out: str
    err: str


Command = Callable[..., Outcome]
