"""No file that is read can make recmill run code; scratch files are the user's alone."""

import ast
import bz2
import gzip
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from recmill.cli.main import main
from recmill.data.logs import text_file
from recmill.data.logs.text_file import open_plain
from recmill.errors import DataError
from recmill.jit import KernelFiles

SOURCE = Path(__file__).parents[1] / "src" / "recmill"
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "runpy", "code"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
IMPORTERS = {"import_module", "spec_from_file_location", "exec_module", "module_from_spec", "SourceFileLoader"}
# Where what is imported comes from a table of the package itself, or from the user's own words.
ALLOWED = {
    ("__init__.py", "import_module"): "the front door: names of the package's own functions",
    ("recipes/__init__.py", "import_module"): "the table of recipes",
    ("training/job.py", "import_module"): "the table of families",
    ("embeddings/rules.py", "import_module"): "the table of optimizers",
    ("embeddings/shard_fused.py", "import_module"): "the table of optimizers",
    ("cli/bench.py", "import_module"): "a benchmark that the command line names, of the checkout's own",
    ("cli/options.py", "spec_from_file_location"): "--layers FILE.py:FUNCTION, given on the command line",
    ("cli/options.py", "module_from_spec"): "the same",
    ("cli/options.py", "exec_module"): "the same",
    ("jit.py", "pickle"): "the user's own compiled kernels, as numba keeps them",
}


def found_in(path: Path) -> Iterator[str]:
    """What in a file could run code from elsewhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names if name.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            yield from found_in_call(node)


def found_in_call(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    options = {option.arg: ast.unparse(option.value) for option in call.keywords}
    if name in BUILTINS or last in IMPORTERS:
        yield last
    if name == "torch.load" and options.get("weights_only") != "True":
        yield name
    if last in ("load", "open_memmap") and options.get("allow_pickle", "False") != "False":
        yield name


def test_nothing_that_runs_code_from_files_is_used() -> None:
    found = {(str(path.relative_to(SOURCE)), what) for path in SOURCE.rglob("*.py") for what in found_in(path)}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from yaml import load", "eval('1')", "torch.load(path)", "np.load(path, allow_pickle=True)"],
)
def test_the_search_finds(code: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(code)
    assert list(found_in(tmp_path / "file.py"))


def test_settings_that_name_layers_import_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the user's own code only --layers speaks."""
    mark = tmp_path / "imported"
    (tmp_path / "own.py").write_text(f"open({str(mark)!r}, 'w')\ndef build(config, schema): ...\n")
    settings = tmp_path / "run.toml"
    settings.write_text(f'[model]\nkind = "custom"\nlayers = "{tmp_path}/own.py:build"\n')
    assert main(["synth", "criteo", "--days", "3", "--rows", "60", "--out", str(tmp_path / "log")]) == 0
    words = ["--config", str(settings), "--data", str(tmp_path / "log"), "--set", "data.global_batch=20"]
    main(["plan", "demo", *words])
    assert main(["train", "demo", *words, "--run", str(tmp_path / "run")]) == 2
    assert "layers" in capsys.readouterr().err
    assert not mark.exists()


def test_scratch_files_are_private_and_nameless(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress(b"a\n"))
    with open_plain(path) as scratch:
        status = os.fstat(scratch.fileno())
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_nlink == 0


def test_scratch_files_are_made_by_tempfile_alone() -> None:
    """It makes them 0600 and 0700."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "mktemp(" not in text, path
        assert '"/tmp' not in text, path


def test_kernels_of_somebody_else_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = KernelFiles(tmp_path, "kernel", 0)
    files.save("key", 7)
    assert files.load("key") == 7
    if os.geteuid() == 0:
        os.chown(next(tmp_path.iterdir()), 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert files.load("key") is None


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_a_file_that_unpacks_to_more_than_the_disk_has_is_rejected(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, path = b"0" * (64 << 20), tmp_path / f"rows{suffix}"
    packers: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    path.write_bytes(packers[suffix](content))
    with open_plain(path) as scratch:
        assert scratch.tell() == len(content)
    monkeypatch.setattr(text_file, "unpacking_room", lambda _scratch_dir: 10 << 20)
    with pytest.raises(DataError, match=r"rows.* unpacks to more than 10,485,760 bytes.*TMPDIR"):
        open_plain(path)
