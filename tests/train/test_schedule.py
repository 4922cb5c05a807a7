import pytest

from recmill.errors import ConfigError
from recmill.train.schedule import Schedule, lr_at


def test_warm_up_plateau_and_quadratic_decay() -> None:
    schedule = Schedule(warmup_steps=4, decay_start_step=6, decay_steps=4)
    rates = [lr_at(step, 1.0, schedule) for step in range(12)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]


def test_each_part_works_alone() -> None:
    assert [lr_at(step, 2.0, Schedule()) for step in (0, 10**9)] == [2.0, 2.0]
    assert [lr_at(step, 2.0, Schedule(warmup_steps=2)) for step in range(4)] == [1.0, 2.0, 2.0, 2.0]
    linear = Schedule(decay_start_step=1, decay_steps=2, decay_power=1.0)
    assert [lr_at(step, 2.0, linear) for step in range(4)] == [2.0, 2.0, 1.0, 0.0]


def test_decay_before_the_end_of_warm_up_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"schedule.decay_start_step \(3\) comes before the warm-up ends \(4\)"):
        Schedule(warmup_steps=4, decay_start_step=3, decay_steps=1)
