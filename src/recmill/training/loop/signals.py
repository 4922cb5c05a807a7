"""A run that is asked to end saves its state first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # Ctrl-C, preemption, the warning before a time limit


class Signals:
    """What this process was asked."""

    def __init__(self) -> None:
        self.caught = 0  # the number of the latest one

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note signals instead of ending by them; a second Ctrl-C ends at once. Only a main thread may watch."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in ASKING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = number
