"""When work is done that someone will want soon: in the background at once, or together with all the rest on demand.

Background threads cost nothing while a core is idle. Where the layers' threads keep all cores busy, an interruption of
one is time lost for all that wait for it, and it pays to let everyone parse between two steps instead.
"""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, ParamSpec, Protocol, Self, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


@dataclass(frozen=True)
class ReadAhead:
    """How many threads parse, and how many batches may lie ready; with 0 all parsing is done when a batch is wanted."""

    threads: int = 2
    batches: int = 4


class Coming(Protocol[T_co]):
    """What a call will return."""

    def result(self) -> T_co:
        """Its value, or its error raised; waits if it has to."""


class Pool(Protocol):
    """Threads that make calls."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coming[T]:
        """Have a call made."""

    def cancel(self) -> None:
        """Make no call any more."""

    def close(self) -> None:
        """Make no call any more, and end the threads."""


def _give_way() -> None:
    """Let the trainer's threads go first: what is read ahead is rarely urgent."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # on Linux a thread has a niceness of its own


class EagerPool:
    """Makes every call as soon as a thread is free."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, "recmill-parse", initializer=_give_way)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coming[T]:
        """Queue a call."""
        return self._executor.submit(call, *args, **kwargs)

    def cancel(self) -> None:
        """Whoever waits for a call that was not made is told so."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Cancel what waits, and wait for what runs."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class _Call(Generic[T]):
    """A call that is made with its whole pool."""

    def __init__(self, pool: "LazyPool", call: Callable[[], T]) -> None:
        self._pool = pool
        self._call: Callable[[], T] | None = call
        self._value: T
        self._error: Exception | None = None

    def make(self) -> None:
        assert self._call is not None
        try:
            self._value = self._call()
        except Exception as error:  # Ctrl-C is not this call's: it ends whoever asked, now
            self._error = error
        self._call = None

    def result(self) -> T:
        if self._call is not None:
            self._pool.make_all()
        if self._error is not None:
            raise self._error
        return self._value


class LazyPool:
    """Makes no call until a result is asked for, and then all that wait, with all threads, the asking one included."""

    def __init__(self, threads: int) -> None:
        self._num_others = threads - 1
        self._executor = ThreadPoolExecutor(max(1, self._num_others), "recmill-parse")
        self._waiting = deque[_Call[object]]()

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coming[T]:
        """Remember a call."""
        coming = _Call(self, lambda: call(*args, **kwargs))
        self._waiting.append(coming)  # type: ignore[arg-type]  # it is never read as T from here
        return coming

    def make_all(self) -> None:
        """Return when no call waits."""
        others = [self._executor.submit(self._make_some) for _ in range(min(self._num_others, len(self._waiting) - 1))]
        self._make_some()
        for other in others:
            if not other.cancel():
                other.result()

    def _make_some(self) -> None:
        while True:
            try:
                call = self._waiting.popleft()
            except IndexError:
                return
            call.make()

    def cancel(self) -> None:
        """Forget what waits."""
        self._waiting.clear()

    def close(self) -> None:
        """Forget what waits; nothing runs unless someone is in `make_all`."""
        self.cancel()
        self._executor.shutdown(wait=True)


class Background(Generic[T]):
    """An iterator run by a thread of its own, with room for so many items that nobody has taken yet."""

    def __init__(self, items: Iterator[T], room: int) -> None:
        self._items = items
        self._ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(room)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="recmill-batches", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self._ready.get()
        if isinstance(item, tuple):
            return item[0]
        self._ready.put(item)  # whoever asks again gets the same answer
        raise StopIteration if item is None else item

    def close(self) -> None:
        """End the thread and let go of what it made."""
        self._closing.set()
        while self._thread.is_alive():
            self._discard_ready()  # it may be waiting for room
            self._thread.join(timeout=0.01)
        self._discard_ready()

    def _discard_ready(self) -> None:
        while not self._ready.empty():
            self._ready.get_nowait()

    def _produce(self) -> None:
        """Put items into the queue, then None or the error that ended them."""
        end: BaseException | None = None
        _give_way()
        try:
            for item in self._items:
                self._ready.put((item,))
                if self._closing.is_set():
                    return
        except CancelledError:
            return  # only close() cancels
        except BaseException as error:
            end = error
        self._ready.put(end)
