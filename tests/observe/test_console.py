import io

import pytest
from rich.console import Console

from recmill.observe.console import ProgressLine, format_duration


def test_without_a_terminal_only_milestones_are_printed() -> None:
    out = io.StringIO()
    with ProgressLine(Console(file=out)) as line:
        assert not line.wants_update
        line.update("step 1")
        line.milestone("step 100  [loss] 0.5")
    assert out.getvalue() == "step 100  [loss] 0.5\n"


def test_in_a_terminal_the_line_is_live_and_milestones_stay() -> None:
    out = io.StringIO()
    with ProgressLine(Console(file=out, force_terminal=True, width=80)) as line:
        assert line.wants_update
        line.update("step 1")
        assert not line.wants_update, "not more often than anyone can read"
        line.milestone("step 100")
    assert "step 1" in out.getvalue()
    assert "step 100\n" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
