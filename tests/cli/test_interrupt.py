"""Ctrl-C at any moment of any verb: one line, status 130, and nothing half-written under the name asked for."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recmill.errors import INTERRUPTED

# the interpreter has started, and nothing of the command has been loaded
START = "import sys, recmill.__main__ as m; sys.argv = ['recmill', *sys.argv[1:]]; print('ready', flush=True); m.main()"
VERBS = {
    "audit": "audit --data {data} --schema {schema}",
    "prepare": "prepare --data {data} --schema {schema} --out {out} --set data.holdout_frac=0.1",
    "infer": "schema infer {data} --out {out}",
    "synth": "synth table --rows 400000 --out {out}",
    "train": "train auto --data {data} --run {out}",
    "plan": "plan mlperf",
}


def interrupted(words: list[str], delay: float) -> tuple[int, str]:
    """The status and the messages of a command that is interrupted after so many seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    return process.returncode, messages


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupted_verb_says_so_and_leaves_nothing_half_written(
    verb: str, delay: float, own_table: tuple[Path, Path], tmp_path: Path
) -> None:
    data, schema = own_table
    out = tmp_path / "out"
    words = [word.format(data=data, schema=schema, out=out) for word in VERBS[verb].split()]
    status, messages = interrupted(words, delay)
    assert status in (0, INTERRUPTED), messages
    assert "Traceback" not in messages
    if status == INTERRUPTED:
        assert messages.strip().splitlines()[-1].startswith("recmill: ")
        if verb in ("prepare", "infer", "synth"):
            assert not out.exists()


@pytest.fixture(scope="module")
def own_table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from recmill.cli.main import main

    scratch = tmp_path_factory.mktemp("table")
    assert main(["synth", "table", "--rows", "30000", "--out", str(scratch / "t")]) == 0
    data, schema = scratch / "t" / "table.csv", scratch / "schema.toml"
    assert main(["schema", "infer", str(data), "--out", str(schema)]) == 0
    return data, schema
