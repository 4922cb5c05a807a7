import threading
from collections.abc import Callable, Iterator

import pytest

from recmill.data.stream.ahead import Background, EagerPool, LazyPool


def test_a_lazy_pool_makes_no_call_before_a_result_is_wanted_and_then_all() -> None:
    pool, made = LazyPool(3), set[int]()

    def call(number: int) -> int:
        made.add(number)
        return number * number

    coming = [pool.submit(call, number) for number in range(50)]
    assert made == set()
    assert coming[17].result() == 289
    assert made == set(range(50))
    assert [each.result() for each in coming] == [number * number for number in range(50)]
    later = pool.submit(call, 99)
    assert 99 not in made
    assert later.result() == 99**2
    pool.close()


def test_all_threads_of_a_lazy_pool_work_the_asking_one_included() -> None:
    pool, barrier, names = LazyPool(3), threading.Barrier(3), set[str]()

    def meet() -> None:
        barrier.wait(timeout=30)  # passes only if three threads come
        names.add(threading.current_thread().name)

    for _ in range(3):
        coming = pool.submit(meet)
    coming.result()
    assert threading.current_thread().name in names
    assert len(names) == 3
    pool.close()


def test_an_error_reaches_whoever_asks_for_that_result_and_nobody_else() -> None:
    pool = LazyPool(2)
    good, bad = pool.submit(lambda: 1), pool.submit(lambda: 1 // 0)
    assert good.result() == 1
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            bad.result()
    pool.close()


def test_an_interrupt_ends_whoever_asks_at_once() -> None:
    """And not the one who will ask for the call in which it came, perhaps never."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    pool = LazyPool(1)
    wanted = pool.submit(lambda: 1)
    pool.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        wanted.result()
    pool.close()


@pytest.mark.parametrize("build", [LazyPool, EagerPool])
def test_a_closed_pool_leaves_no_thread(build: Callable[[int], LazyPool | EagerPool]) -> None:
    before = set(threading.enumerate())
    pool = build(4)
    coming = [pool.submit(threading.get_ident) for _ in range(20)]
    assert coming[-1].result()
    pool.cancel()
    pool.close()
    assert set(threading.enumerate()) <= before


def test_a_background_iterator_yields_the_same_and_then_the_same_end() -> None:
    items = Background(iter(range(100)), 3)
    assert list(items) == list(range(100))
    assert list(items) == []
    items.close()

    def fails() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    failing = Background(fails(), 3)
    assert next(failing) == 1
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            next(failing)
    failing.close()
