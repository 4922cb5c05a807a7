"""Law *hostile*: files of a run that lie with valid checksums are rejected by name, or change no result."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.laws.damage import Kind, _complaint, _used
from tests.laws.forks import ForkServer
from tests.laws.hostile_runs import CASES, FOREIGN, Case
from tests.laws.kinds import KINDS, Workshop

FAMILIES = ("run", "sequence run")


@pytest.fixture(scope="module")
def kinds(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Kind, list[str]]]:
    """Of each family an example, and what its commands give."""
    shop, scratch = Workshop(server, tmp_path_factory.mktemp("shop")), tmp_path_factory.mktemp("intact")
    made = {name: KINDS[name](shop) for name in FAMILIES}
    return {
        name: (kind, [_used(use, kind.example, server, scratch)[1] for use in kind.uses]) for name, kind in made.items()
    }


def complaints(
    case: Case, kind: Kind, intact: list[str], server: ForkServer, scratch: Path
) -> Iterator[tuple[str, int | None]]:
    """For each use of an altered run, what is wrong with how it ended, and its status."""
    secret = scratch / "secret"
    for use, result in zip(kind.uses, intact, strict=True):
        harmed = scratch / "harmed"
        shutil.copytree(kind.example, harmed)
        secret.write_text("secret")
        case(harmed, kind.other)
        ended, found = _used(use, harmed, server, scratch, in_place=True)
        shutil.rmtree(harmed)
        assert [path.name for path in scratch.iterdir()] == ["secret"], "something was written elsewhere"
        assert secret.read_text() == "secret"
        complaint = _complaint(ended, found, result)
        yield f"{use.words[0]}: {complaint}" if complaint else "", ended.status


@pytest.mark.parametrize("family", ["run", pytest.param("sequence run", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_lies_are_noticed_or_without_effect(
    name: str, family: str, kinds: dict[str, tuple[Kind, list[str]]], server: ForkServer, tmp_path: Path
) -> None:
    kind, intact = kinds[family]
    assert [text for text, _ in complaints(CASES[name], kind, intact, server, tmp_path) if text] == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", FOREIGN)
def test_parts_of_another_run_are_rejected(
    name: str, family: str, kinds: dict[str, tuple[Kind, list[str]]], server: ForkServer, tmp_path: Path
) -> None:
    kind, intact = kinds[family]
    found = list(complaints(FOREIGN[name], kind, intact, server, tmp_path))
    assert [text for text, _ in found if text] == []
    users = {"checkpoints": (0,), "model": (1, 2), "config.toml": (0, 1, 2), "results.json": (1, 2)}[name]
    assert [found[place][1] for place in users] == [2] * len(users)


def test_a_whole_run_may_be_moved(kinds: dict[str, tuple[Kind, list[str]]], server: ForkServer, tmp_path: Path) -> None:
    kind, intact = kinds["run"]
    moved = tmp_path / str(random.Random(0).random()) / "elsewhere"
    shutil.copytree(kind.example, moved)
    for use, result in list(zip(kind.uses, intact, strict=True))[1:]:
        ended, found = use.run(server, moved, tmp_path / "out")
        assert (ended.status, found) == (0, result)
