"""The command line as a fixture."""

from pathlib import Path

import pytest

from recmill.cli.main import main
from tests.cli.command import Command, Outcome


@pytest.fixture
def recmill(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command; what it returned and printed, subprocesses included."""

    def run(*words: str | int | Path) -> Outcome:
        capfd.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as stopped:  # argparse
            status = int(stopped.code or 0)
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run
