"""Commands in forks, and small examples of what recmill writes, for the laws about files."""

from collections.abc import Iterator

import pytest

from tests.laws.forks import ForkServer
from tests.laws.kinds import Workshop


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as running:
        yield running


@pytest.fixture(scope="module")
def shop(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(server, tmp_path_factory.mktemp("shop"))
