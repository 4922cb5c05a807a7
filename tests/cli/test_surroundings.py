"""Odd surroundings: full and closed outputs, other encodings, narrow terminals, no scratch space, odd data."""

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recmill.cli.main import is_starved
from tests.laws.faults import build_shim
from tests.laws.forks import ForkServer

TINY = ("--set", "data.global_batch=50", "--set", "data.eval_batch=50", "--set", "stop.max_steps=1")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(timeout_s=120) as running:
        yield running


@pytest.fixture(scope="module")
def log(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("log")
    assert server.run("synth", "criteo", "--days", "3", "--rows", "300", "--out", place / "log").status == 0
    return place / "log"


def shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command line in which `recmill` stands for the program; its status is that of the program."""
    program = f"{sys.executable} -m recmill"
    script = f"set -o pipefail; {command.replace('recmill', program, 1)}"
    environment = {**os.environ, **variables}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_a_full_output_is_explained() -> None:
    ended = shell("recmill recipes > /dev/full")
    assert ended.returncode == 2
    assert "No space left on device" in ended.stderr
    assert "internal error" not in ended.stderr


@pytest.mark.parametrize("command", ["recmill recipes | head -1", "recmill recipes | true", "recmill recipes >&-"])
def test_a_closed_output_ends_a_command_silently(command: str) -> None:
    ended = shell(command)
    assert ended.returncode in (0, 1)
    assert ended.stderr == ""


def test_an_encoding_that_lacks_characters_gets_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("label,\u00e9\n" + "".join(f"{row % 2},{'abc'[row % 3]}\n" for row in range(60)), encoding="utf-8")
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = shell(f"recmill schema infer {path}", **plain)
    assert ended.returncode == 0
    assert "\\xe9" in ended.stdout


@pytest.mark.parametrize("columns", ["20", "1", "0", "-3", "x"])
def test_any_width_of_a_terminal_will_do(columns: str) -> None:
    assert shell("recmill train --help", COLUMNS=columns).returncode == 0
    assert shell("recmill recipes", COLUMNS=columns).returncode == 0


def test_scratch_directories_that_are_missing_are_no_obstacle(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "rows.gz"
    packed.write_bytes(gzip.compress((log / "day_0").read_bytes()))
    ended = shell(f"recmill schema infer {packed}", TMPDIR="/nonexistent")
    assert ended.returncode == 0, ended.stderr


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    """Kernels are compiled for this process alone."""
    script = tmp_path / "kernel.py"
    script.write_text(
        "from recmill.jit import njit\n@njit(cache=True)\ndef add(x):\n    return x + 1\nassert add(1) == 2\n"
    )
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o500)
    for place in (cache, Path("/proc/nope")):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(place), "HOME": "/nonexistent"}
        ended = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("limit_kib", [30_000, 200_000, 600_000, 1_300_000, 1_500_000])
@pytest.mark.parametrize("verb", ["train demo --run", "prepare --out"])
def test_little_address_space_is_said_before_anything_is_loaded(
    verb: str, limit_kib: int, log: Path, tmp_path: Path
) -> None:
    """Below these limits libraries fail to load, abort, or wait for threads for ever."""
    if verb.startswith("prepare") and limit_kib > 1_250_000:
        pytest.skip("enough to prepare")
    ended = shell(f"ulimit -v {limit_kib}; recmill {verb} {tmp_path / 'out'} --data {log}")
    assert ended.returncode == 2, ended.stderr
    assert "the address space of this process is limited to" in ended.stderr
    assert "ulimit -v unlimited" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_little_address_space_does_not_concern_verbs_that_load_nothing() -> None:
    assert shell("ulimit -v 100000; recmill recipes").returncode == 0


def test_a_lack_of_memory_is_recognised_in_the_words_of_libraries() -> None:
    assert is_starved(ImportError("libtorch_cpu.so: failed to map segment from shared object"))
    assert is_starved(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert is_starved(RuntimeError("can't start new thread"))
    consequence = ValueError("field 'target' is required for AnnAssign")
    consequence.__context__ = MemoryError()
    assert is_starved(consequence)
    assert not is_starved(ValueError("no"))


@pytest.mark.parametrize("place", ["/proc", "/dev/null"])
def test_a_scratch_directory_that_cannot_be_written_is_no_obstacle(place: str, log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "rows.gz"
    packed.write_bytes(gzip.compress((log / "day_0").read_bytes()))
    ended = shell(f"recmill split {packed} --parts 1 --rows 10 --out {tmp_path / 'out'}", TMPDIR=place)
    assert ended.returncode == 0, ended.stderr


FULL_FROM = """
import errno, sys
from recmill.cli.main import main
from tests.laws.forks import Fault
Fault(sys.argv[1], int(sys.argv[2]), "fail", errno.ENOSPC, is_lasting=True).arm()
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize("number", [4, 5])  # the first three look for a place
def test_a_full_scratch_directory_is_explained(number: int, log: Path, tmp_path: Path) -> None:
    """Whatever is the first that no longer fits; nothing is left behind."""
    scratch, packed = tmp_path / "scratch", tmp_path / "packed"
    for directory in (scratch, packed):
        directory.mkdir()
    for day in log.glob("day_*"):
        (packed / f"{day.name}.gz").write_bytes(gzip.compress(day.read_bytes()))
    words = ("prepare", "--data", packed, "--out", tmp_path / "out")
    environment = {**os.environ, "TMPDIR": str(scratch), "LD_PRELOAD": str(build_shim(tmp_path))}
    ended = subprocess.run(
        [sys.executable, "-c", FULL_FROM, scratch, str(number), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "No space left on device" in ended.stderr or str(scratch) in ended.stderr
    assert "internal error" not in ended.stderr
    assert not (tmp_path / "out").exists()
    assert list(scratch.iterdir()) == []


def test_a_home_that_cannot_be_written_is_no_obstacle(log: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    odd = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/proc/nope"}
    assert shell(f"recmill prepare --data {log} --out {rows}", **odd).returncode == 0
    ended = shell(f"recmill train demo --data {rows} --run {tmp_path / 'run'} {' '.join(TINY)}", **odd)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("seed", ["-1", "18446744073709551616", "1" + "0" * 100])
def test_seeds_at_their_limits_work_or_are_rejected(seed: str, log: Path, server: ForkServer, tmp_path: Path) -> None:
    for words in (
        ("prepare", "--data", log, "--out", tmp_path / "rows", "--seed", seed),
        ("synth", "criteo", "--days", "1", "--rows", "50", "--out", tmp_path / "log", "--seed", seed),
    ):
        ended = server.run(*words)
        assert ended.status == 0 or ended.is_rejected, ended.describe()


def test_a_limit_of_file_sizes_is_explained(log: Path, tmp_path: Path) -> None:
    ended = shell(f"ulimit -f 10; recmill train demo --data {log} --run {tmp_path / 'run'} {' '.join(TINY)}")
    assert ended.returncode in (1, 2)
    assert "could not be saved" in ended.stderr
    assert "internal error" not in ended.stderr


def test_one_row_and_equal_labels_are_rejected_or_work(server: ForkServer, tmp_path: Path) -> None:
    one, equal = tmp_path / "one.csv", tmp_path / "equal.csv"
    one.write_text("label,a,b\n1,x,2\n")
    equal.write_text("label,a,b\n" + "".join(f"1,{'xyz'[row % 3]},{row % 7}\n" for row in range(300)))
    for path in (one, equal):
        for words in (("audit",), ("train", "auto", "--label", "label", "--run", tmp_path / path.stem)):
            ended = server.run(*words, "--data", path)
            assert ended.status == 0 or ended.is_rejected, ended.describe()


def test_ten_thousand_columns_are_looked_at(server: ForkServer, tmp_path: Path) -> None:
    path, num_columns = tmp_path / "wide.csv", 10_000
    rows = [
        ",".join([str(row % 2), *(str((row * 7 + place) % 11) for place in range(num_columns))]) for row in range(30)
    ]
    path.write_text("\n".join([",".join(["label", *(f"c{place}" for place in range(num_columns))]), *rows, ""]))
    assert server.run("schema", "infer", path, "--out", tmp_path / "wide.toml").status == 0


def test_rows_of_numbers_alone_are_trained_on(server: ForkServer, tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    rows = [f"{row * 7 % 3 % 2},{row * 37 % 101 / 101:.4f},{row * 53 % 97 / 97:.5f}\n" for row in range(400)]
    path.write_text("label,a,b\n" + "".join(rows))
    ended = server.run("train", "auto", "--data", path, "--run", tmp_path / "run", "--set", "stop.max_steps=3")
    assert ended.status == 0, ended.describe()
