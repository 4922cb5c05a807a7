"""What tests of data share."""

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_thread_stays_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
