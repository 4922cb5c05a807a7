"""Law *fault*: whichever file operation fails or is the last, what was complete stays so, and the work can go on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.laws.faults import FaultTrial, build_shim, some_numbers
from tests.laws.forks import ForkServer
from tests.laws.kinds import SCENARIOS, Workshop

SLOW_OPERATIONS = int(os.environ.get("RECMILL_FAULT_OPERATIONS", "100000"))  # of each scenario: all


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with ForkServer(preload=build_shim(tmp_path_factory.mktemp("shim"))) as running:
        yield running


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_failed_operation_loses_nothing(name: str, server: ForkServer, shop: Workshop, tmp_path: Path) -> None:
    trial = FaultTrial(SCENARIOS[name](shop), server, tmp_path)
    assert trial.num_operations > 20
    assert list(trial.violations(some_numbers(trial.num_operations, 4, seed=len(name)))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_failed_operation_loses_anything(name: str, server: ForkServer, shop: Workshop, tmp_path: Path) -> None:
    trial = FaultTrial(SCENARIOS[name](shop), server, tmp_path)
    assert list(trial.violations(some_numbers(trial.num_operations, SLOW_OPERATIONS, seed=0))) == []
