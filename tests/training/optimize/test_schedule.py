from typing import Any

import pytest

from recmill.errors import ConfigError
from recmill.settings.optimizers import Schedule
from recmill.settings.tree import from_tree
from recmill.training.optimize.schedule import lr_at
from tests.training.conftest import Resolve


def rates(num_steps: int, peak_lr: float, **settings: Any) -> list[float]:
    schedule = Schedule(**settings)
    return [lr_at(step, peak_lr, schedule) for step in range(num_steps)]


def test_warm_up_plateau_and_quadratic_decay() -> None:
    expected = [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]
    assert rates(12, 1.0, warmup_steps=4, decay_start_step=6, decay_steps=4) == expected


def test_each_part_works_alone() -> None:
    assert [lr_at(step, 2.0, Schedule()) for step in (0, 10**9)] == [2.0, 2.0]
    assert rates(4, 2.0, warmup_steps=2) == [1.0, 2.0, 2.0, 2.0]
    assert rates(4, 2.0, decay_start_step=1, decay_steps=2, decay_power=1.0) == [2.0, 2.0, 1.0, 0.0]


def test_mlperfs_rates_are_those_its_class_gave() -> None:
    """The numbers were printed by TorchRec's LRPolicyScheduler: a plateau short of the rate, then a jump to it."""
    published = [0.25, 0.5, 0.75, 0.75, 0.75, 1.0, 0.5625, 0.25, 0.0625, 0.0625, 0.0625]
    assert rates(11, 1.0, kind="mlperf", warmup_steps=4, decay_start_step=6, decay_steps=4) == published


def test_mlperfs_parts_work_alone_where_the_published_class_gave_up() -> None:
    assert rates(4, 2.0, kind="mlperf") == [2.0] * 4
    assert rates(5, 1.0, kind="mlperf", warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates(6, 1.0, kind="mlperf", decay_start_step=2, decay_steps=2) == [1.0, 1.0, 0.25, 0.25, 0.25, 0.25]


def test_mlperfs_rate_is_never_under_its_least() -> None:
    schedule = Schedule(kind="mlperf", decay_steps=10_000)
    assert lr_at(9_998, 0.004, schedule) == 1e-7


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0),
        (1, 24 / 2750),
        (1375, 12.0),
        (2749, 24 * 2749 / 2750),
        (2750, 24.0),
        (49_314, 24.0),
        (49_315, 24.0),
        (63_201, 6.0),
        (75_000, 0.1355),
        (77_087, 0.0),
        (100_000, 0.0),
    ],
)
def test_oneflows_published_schedule(step: int, expected: float) -> None:
    schedule = Schedule(kind="oneflow", warmup_steps=2750, decay_start_step=49_315, decay_steps=27_772)
    assert lr_at(step, 24.0, schedule) == pytest.approx(expected, abs=5e-5)


def test_step_changes_multiply() -> None:
    assert rates(7, 1.0, kind="step", change_steps=(2, 5), change_factor=0.5) == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert rates(4, 1.0, kind="step", warmup_steps=2, change_steps=(3,), change_factor=2.0) == [0.5, 1.0, 1.0, 2.0]


def test_shares_are_of_the_runs_steps(resolve: Resolve) -> None:
    config = resolve("schedule.kind=step", "schedule.change_fracs=[0.8]", "stop.max_steps=10")
    assert config.resolved_schedule.change_steps == (8,)
    with pytest.raises(ConfigError, match=r"change_fracs = \[0.8\] are shares of stop.max_steps, which is 0; set"):
        resolve("schedule.kind=step", "schedule.change_fracs=[0.8]")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"warmup_steps": 4, "decay_start_step": 3, "decay_steps": 1},
            r"schedule.decay_start_step \(3\) comes before the warm-up ends \(4\); raise it or shorten",
        ),
        (
            {"kind": "oneflow", "warmup_steps": 4, "decay_start_step": 3, "decay_steps": 1},
            r"schedule.decay_start_step \(3\) comes before the warm-up ends \(4\)",
        ),
        (
            {"kind": "step", "warmup_steps": 4, "change_steps": (3,)},
            r"schedule.change_steps \(3\) comes before the warm-up ends \(4\)",
        ),
        ({"kind": "step"}, r"needs either schedule.change_steps \(\[\]\) or schedule.change_fracs"),
        ({"kind": "step", "change_steps": (3,), "change_fracs": (0.5,)}, "needs either"),
        ({"kind": "step", "change_fracs": (1.5,)}, "change_fracs holds 1.5"),
        ({"kind": "step", "change_steps": (9,), "decay_steps": 5}, "decay_steps = 5 does nothing"),
        ({"change_steps": (9,)}, r"change_steps = \[9\] does nothing for schedule.kind = polynomial"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Schedule(**settings)


def test_warm_up_and_decay_may_be_shares_of_a_run() -> None:
    shares = Schedule(warmup_frac=0.1, decay_frac=0.25, decay_power=1.0).resolved(400)
    steps = Schedule(warmup_steps=40, decay_start_step=300, decay_steps=100, decay_power=1.0)
    assert [lr_at(step, 1.0, shares) for step in range(401)] == [lr_at(step, 1.0, steps) for step in range(401)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup_frac": 0.1, "warmup_steps": 3}, "warmup_frac and schedule.warmup_steps say the same thing twice"),
        ({"decay_frac": 0.1, "decay_start_step": 3}, "decay_frac and schedule.decay_start_step say the same"),
        ({"decay_frac": 0.7, "warmup_frac": 0.7}, "add up to 1.4"),
        ({"kind": "step", "change_steps": [3], "decay_frac": 0.1}, "decay_frac = 0.1 does nothing"),
    ],
)
def test_shares_that_contradict_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_tree(Schedule, settings)
