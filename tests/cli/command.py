"""The command line, called in this process."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from recmill.cli.main import build_parser

TINY = ("--set", "data.table_rows=" + str([50] * 26), "--set", "data.global_batch=100")


@dataclass(frozen=True)
class Outcome:
    """What a command returned and printed."""

    status: int
    out: str
    err: str


Command = Callable[..., Outcome]


def _verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(verbs.choices)


VERBS = _verbs_of(build_parser())
CHECKPOINT_ACTIONS = _verbs_of(VERBS["checkpoint"])
