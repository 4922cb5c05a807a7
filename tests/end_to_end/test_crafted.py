"""Law *hostile*: no value in any file, all checksums right, ends a command otherwise than by name or without effect."""

import os
from pathlib import Path

import pytest

from tests.laws.crafted import find_believed
from tests.laws.forks import ForkServer
from tests.laws.kinds import KINDS, Workshop

SLOW_CASES = int(os.environ.get("RECMILL_HOSTILE_CASES", "10000"))  # in all


@pytest.mark.parametrize("name", KINDS)
def test_lies_are_noticed_or_without_effect(name: str, server: ForkServer, shop: Workshop, tmp_path: Path) -> None:
    assert find_believed(KINDS[name](shop), server, tmp_path, range(6)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_lies_are_noticed_or_without_effect(name: str, server: ForkServer, shop: Workshop, tmp_path: Path) -> None:
    seeds = range(1000, 1000 + SLOW_CASES // len(KINDS))
    assert find_believed(KINDS[name](shop), server, tmp_path, seeds) == []
