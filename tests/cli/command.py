"""The command line, called in this process."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recmill.cli.main import build_parser, main

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


def train_sasrec(scratch: Path, *words: str) -> Path:
    """Events of 100 users in `world`, prepared in `data`, and a run of SASRec on them; its directory."""
    assert main(["synth", "interactions", "--users", "100", "--items", "90", "--out", str(scratch / "world")]) == 0
    events = str(scratch / "world" / "interactions.csv")
    assert main(["prepare", "--preset", "events", "--data", events, "--out", str(scratch / "data")]) == 0
    assert main(["train", "sasrec", "--data", str(scratch / "data"), "--run", str(scratch / "run"), *words]) == 0
    return scratch / "run"
