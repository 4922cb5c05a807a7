"""Processes of a host keep to cores of their own, unless somebody has bound them before."""

import json
import os
import socket
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recmill import cores
from recmill.cores import in_order_of_place, keep_to_own_cores, share_of


@given(st.lists(st.integers(0, 500), min_size=1, unique=True), st.integers(1, 40))
def test_shares_are_even_and_cover_all_cores(numbers: list[int], count: int) -> None:
    shares = [share_of(numbers, index, count) for index in range(count)]
    sizes = [len(share) for share in shares]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert set().union(*shares) == set(numbers)
    if count <= len(numbers):
        assert sum(sizes) == len(numbers), "nobody has another's core"


def test_threads_of_a_core_and_cores_of_a_socket_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sockets of two cores of two threads, numbered as Linux does: the second threads behind all first ones."""
    places = {number: {"physical_package_id": number % 4 // 2, "core_id": number % 2} for number in range(8)}
    monkeypatch.setattr(cores, "_place", lambda number, what: places[number][what])
    assert in_order_of_place(range(8)) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert in_order_of_place({7, 4, 2}) == [4, 2, 7]


def test_the_order_of_this_machine_leaves_nobody_out() -> None:
    assert sorted(in_order_of_place(os.sched_getaffinity(0))) == sorted(os.sched_getaffinity(0))


class Words(dict[str, str]):
    """A store in which all processes have left their words."""

    def __init__(self, masks: Iterable[tuple[int, ...]]) -> None:
        super().__init__({f"cores_{socket.gethostname()}_{i}": json.dumps(mask) for i, mask in enumerate(masks)})

    def set(self, key: str, value: str) -> None:
        assert self[key] == value


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        (((0, 1, 2, 3), (0, 1, 2, 3)), [{0, 1}, {2, 3}]),
        (((0, 1), (2, 3)), [None, None]),  # a launcher has bound them
        (((0, 1, 2, 3), (2, 3)), [None, None]),
        (((0, 1), (0, 1), (0, 1)), [{0}, {1}, {0}]),
    ],
)
def test_who_shares_all_cores_takes_a_part_of_them(
    masks: tuple[tuple[int, ...], ...], expected: list[set[int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, taken, rank = Words(masks), dict[int, Any](), 0
    monkeypatch.setattr(cores, "_place", lambda _number, _what: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(masks[rank]))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _pid, share: taken.update({rank: share}))
    for rank in range(len(masks)):
        keep_to_own_cores(store, rank, len(masks))  # type: ignore[arg-type]
    assert [taken.get(rank) for rank in range(len(masks))] == expected
