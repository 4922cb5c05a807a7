from pathlib import Path

import pytest
from benchmarks.scale import Bench, largest_difference


@pytest.mark.parametrize(
    ("model", "num_steps", "num_slices", "num_first"),
    [("small", 200, 40, 4), ("small", 61, 13, 2), ("small", 1, 1, 0), ("mlperf", 60, 60, 6)],
)
def test_the_first_tenth_of_a_run_is_not_timed(model: str, num_steps: int, num_slices: int, num_first: int) -> None:
    bench = Bench(model, Path("data"), Path("scratch"), num_steps)
    assert (bench.num_slices, bench.num_first) == (num_slices, num_first)


def test_losses_are_compared_step_by_step() -> None:
    assert largest_difference([0.5, 0.4], [0.5, 0.3]) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="shorter"):
        largest_difference([0.5, 0.4], [0.5])
