"""Law *damage*: whatever happens to a file that recmill wrote is noticed by name, or changes no result."""

import os
from pathlib import Path

import pytest

from tests.laws.damage import find_violations
from tests.laws.forks import ForkServer
from tests.laws.kinds import KINDS, Workshop

SLOW_CASES = int(os.environ.get("RECMILL_DAMAGE_CASES", "10000"))  # in all


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_noticed_or_without_effect(name: str, server: ForkServer, shop: Workshop, tmp_path: Path) -> None:
    assert find_violations(KINDS[name](shop), server, tmp_path, range(25)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_damage_is_noticed_or_without_effect_in_many_cases(
    name: str, server: ForkServer, shop: Workshop, tmp_path: Path
) -> None:
    seeds = range(1000, 1000 + SLOW_CASES // len(KINDS))
    assert find_violations(KINDS[name](shop), server, tmp_path, seeds) == []
