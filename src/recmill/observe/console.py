"""The line a person watches: live in a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

REFRESH_S = 0.1


class ProgressLine:
    """Shows one changing line; where there is no terminal, prints the lines that matter one below the other."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        )
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    @property
    def wants_update(self) -> bool:
        """Whether a new live line would be seen."""
        return self._live is not None and time.monotonic() - self._shown_at >= REFRESH_S

    def update(self, line: str) -> None:
        """Change the live line."""
        if self._live:
            self._shown_at = time.monotonic()
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def milestone(self, line: str) -> None:
        """A line that stays: above the live one in a terminal, the only kind elsewhere."""
        self._console.print(Text(line), soft_wrap=True)


def quiet_line() -> ProgressLine:
    """One that shows nothing."""
    return ProgressLine(Console(quiet=True))


def format_duration(seconds: float) -> str:
    """Seconds as 42 s, 3 min 20 s or 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
