"""Learning rates as a pure function of the step."""

from typing import Literal

from pydantic import Field

from recmill.errors import ConfigError
from recmill.settings.tree import Settings

LEAST_LR = 1e-7  # of MLPerf's decay


class Schedule(Settings):
    """How the learning rates of tables and layers go up and down together; a length of 0 leaves that part out.

    polynomial   linear warm-up from lr / warmup_steps, plateau, decay to 0 by a polynomial; constant if nothing is set
    mlperf       as TorchRec's LRPolicyScheduler: the plateau is where the warm-up stopped, one step short of lr, the
                 rate is lr when the decay starts, never under 1e-7, and stays behind the decay where it came to
    oneflow      as OneFlow's SequentialLR: the warm-up starts at 0, so that the first step changes nothing
    step         linear warm-up, then lr times change_factor, once more at each of the change_steps, or of the
                 change_fracs of stop.max_steps
    """

    kind: Literal["polynomial", "mlperf", "oneflow", "step"] = "polynomial"
    warmup_steps: int = Field(default=0, ge=0)
    decay_start_step: int = Field(default=0, ge=0)
    decay_steps: int = Field(default=0, ge=0)
    decay_power: float = Field(default=2.0, gt=0)
    change_steps: tuple[int, ...] = ()
    change_fracs: tuple[float, ...] = ()
    change_factor: float = Field(default=0.1, gt=0)

    def model_post_init(self, _context: object) -> None:
        """Refuse a decay that begins before the warm-up ends, and settings that the kind has no use for."""
        if self.decay_steps and self.decay_start_step < self.warmup_steps:
            raise ConfigError(
                f"schedule.decay_start_step ({self.decay_start_step}) comes before the warm-up ends "
                f"({self.warmup_steps}); raise it or shorten schedule.warmup_steps"
            )
        if self.kind == "step":
            self._refuse_changes()
        elif self.change_steps or self.change_fracs:
            name = "change_steps" if self.change_steps else "change_fracs"
            raise ConfigError(
                f"schedule.{name} = {list(getattr(self, name))} does nothing for schedule.kind = {self.kind}; "
                "leave it out or set schedule.kind=step"
            )

    def _refuse_changes(self) -> None:
        if self.decay_steps:
            raise ConfigError(
                f"schedule.decay_steps = {self.decay_steps} does nothing for schedule.kind = step; "
                "set it to 0 or choose schedule.kind=polynomial"
            )
        if bool(self.change_steps) == bool(self.change_fracs):
            raise ConfigError(
                f"schedule.kind = step needs either schedule.change_steps ({list(self.change_steps)}) or "
                f"schedule.change_fracs ({list(self.change_fracs)}); set one of them"
            )
        first = min(self.change_steps, default=self.warmup_steps)
        if first < self.warmup_steps:
            raise ConfigError(
                f"schedule.change_steps ({first}) comes before the warm-up ends ({self.warmup_steps}); "
                "raise it or shorten schedule.warmup_steps"
            )
        for frac in self.change_fracs:
            if not 0 < frac < 1:
                raise ConfigError(f"schedule.change_fracs holds {frac}; a share of the run is between 0 and 1")

    def resolved(self, max_steps: int) -> "Schedule":
        """The same with shares of a run of so many steps as numbers of steps."""
        if not self.change_fracs:
            return self
        if not max_steps:
            raise ConfigError(
                f"schedule.change_fracs = {list(self.change_fracs)} are shares of stop.max_steps, which is 0; "
                "set stop.max_steps, or give schedule.change_steps instead"
            )
        steps = tuple(round(frac * max_steps) for frac in self.change_fracs)
        return Schedule(
            kind="step", warmup_steps=self.warmup_steps, change_steps=steps, change_factor=self.change_factor
        )


def lr_at(step: int, peak_lr: float, s: Schedule) -> float:
    """The learning rate of the step that follows `step` finished ones."""
    if s.kind == "mlperf":
        return _mlperf_lr_at(step + 1, peak_lr, s)  # it counts from 1
    if step < s.warmup_steps:
        return peak_lr * (step if s.kind == "oneflow" else step + 1) / s.warmup_steps
    if s.kind == "step":
        return float(peak_lr * s.change_factor ** sum(step >= change for change in s.change_steps))
    if s.decay_steps == 0 or step < s.decay_start_step:
        return peak_lr
    steps_left = max(0, s.decay_start_step + s.decay_steps - step)
    return float(peak_lr * (steps_left / s.decay_steps) ** s.decay_power)


def _mlperf_lr_at(count: int, peak_lr: float, s: Schedule) -> float:
    if count < s.warmup_steps:
        return peak_lr * count / s.warmup_steps
    if s.decay_steps == 0:
        return peak_lr
    if count < s.decay_start_step:
        return peak_lr * (s.warmup_steps - 1) / s.warmup_steps if s.warmup_steps > 1 else peak_lr
    steps_left = max(1, s.decay_start_step + s.decay_steps - count)
    return max(LEAST_LR, float(peak_lr * (steps_left / s.decay_steps) ** s.decay_power))
