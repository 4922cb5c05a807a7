"""How many bad lines stop a stream, and when."""

import pytest

from recmill.data.logs.bad_rows import BadRowTally, refuse_many_bad
from recmill.errors import BadRowError


@pytest.mark.parametrize(
    ("num_bad", "num_lines", "max_frac"),
    [(0, 10**6, 0.0), (99, 99, 0.01), (1, 100, 0.01), (10, 1000, 0.01), (1000, 1000, 1.0)],
)
def test_few_bad_lines_and_few_lines_stop_nothing(num_bad: int, num_lines: int, max_frac: float) -> None:
    refuse_many_bad(num_bad, num_lines, max_frac, ())


def test_many_bad_lines_stop_with_the_first_of_them() -> None:
    complaint = r"11 of 1,000 lines read are bad \(1.10%\), more than data.max_bad_frac = 0.01 .* a; b; c \(fix"
    with pytest.raises(BadRowError, match=complaint):
        refuse_many_bad(11, 1000, 0.01, iter("abcd"))
    with pytest.raises(BadRowError, match="1 of 100 lines"):
        refuse_many_bad(1, 100, 0.0, ())


@pytest.mark.parametrize(("num_lines", "enough"), [(10, 100), (1000, 900), (10**9, 10_000)])
def test_a_stream_stops_once_enough_lines_are_read(num_lines: int, enough: int) -> None:
    tally = BadRowTally(0.01, num_lines)
    tally.add(0, enough - 1, ())
    with pytest.raises(BadRowError, match=f"{enough:,} of {enough:,} lines"):
        tally.add(0, 1, ())


def test_bad_lines_that_stand_close_together_are_weighed_with_the_others() -> None:
    tally = BadRowTally(0.01, 10**6)
    tally.add(900, 100, ())
    for _ in range(20):
        tally.add(1000, 0, ())
