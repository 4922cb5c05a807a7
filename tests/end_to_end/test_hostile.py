"""Law *hostile*: commands reject manifests that lie, by name, and never leave the directory."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from recmill.files import MANIFEST
from tests.laws.forks import ForkServer
from tests.laws.hostile import Lie, array_lies, lies_about_names, lies_about_rows, npy_lies, set_traps, tell
from tests.laws.kinds import KINDS, Workshop


def _violations(
    name: str, shop: Workshop, server: ForkServer, scratch: Path, lies: Iterable[tuple[str, Lie]]
) -> list[str]:
    """Lies that were believed, or that ended a command otherwise than by a complaint about the directory."""
    kind, found, harmed = KINDS[name](shop), list[str](), scratch / "harmed"
    for told, lie in lies:
        shutil.copytree(kind.example, harmed)
        set_traps(harmed)
        tell(harmed, lie)
        ended, _ = kind.uses[0].run(server, harmed, scratch / "out")
        if not ended.is_rejected or "harmed" not in ended.err:
            found.append(f"{told}: {ended.describe()}")
        shutil.rmtree(harmed)
        shutil.rmtree(scratch / "out", ignore_errors=True)
    return found


def _lies(name: str, shop: Workshop) -> list[tuple[str, Lie]]:
    manifest = json.loads((KINDS[name](shop).example / MANIFEST).read_text())
    return [*lies_about_rows(manifest["subsets"]["train"][0][0]), *lies_about_names()]


@pytest.mark.parametrize(("name", "step"), [("npy rows", 5), ("parquet rows", 13), ("multi-hot rows", 13)])
def test_manifests_of_rows_that_lie(name: str, step: int, shop: Workshop, server: ForkServer, tmp_path: Path) -> None:
    assert _violations(name, shop, server, tmp_path, _lies(name, shop)[::step]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["npy rows", "parquet rows", "multi-hot rows"])
def test_manifests_of_rows_that_lie_in_any_way(name: str, shop: Workshop, server: ForkServer, tmp_path: Path) -> None:
    assert _violations(name, shop, server, tmp_path, _lies(name, shop)) == []


@pytest.mark.parametrize("name", ["sequences", "vocabulary"])
def test_manifests_that_list_files_elsewhere(name: str, shop: Workshop, server: ForkServer, tmp_path: Path) -> None:
    lies = list(lies_about_names())
    if name == "vocabulary":  # of which alone files are read
        read = ("table", "schema", "encoding", "files", "format")
        lies = [(told, lie) for told, lie in _lies(name, shop) if told.startswith(read)][::4]
    assert _violations(name, shop, server, tmp_path, lies) == []


def test_arrays_that_lie(shop: Workshop, server: ForkServer, tmp_path: Path) -> None:
    example = KINDS["npy rows"](shop).example
    lies = [
        *npy_lies(example, "day_0_labels.npy"),
        *array_lies(example, "day_0_labels.npy", "<i4"),
        *array_lies(example, "day_0_sparse.npy", "<i4"),
    ]
    assert _violations("npy rows", shop, server, tmp_path, lies) == []
