"""Learning rates as a pure function of the step."""

from pydantic import Field

from recmill.config import Settings
from recmill.errors import ConfigError


class Schedule(Settings):
    """Linear warm-up, plateau, polynomial decay; a length of 0 leaves that part out."""

    warmup_steps: int = Field(default=0, ge=0)
    decay_start_step: int = Field(default=0, ge=0)
    decay_steps: int = Field(default=0, ge=0)
    decay_power: float = Field(default=2.0, gt=0)

    def model_post_init(self, _context: object) -> None:
        """Refuse a decay that begins before the warm-up ends."""
        if self.decay_steps and self.decay_start_step < self.warmup_steps:
            raise ConfigError(
                f"schedule.decay_start_step ({self.decay_start_step}) comes before the warm-up ends "
                f"({self.warmup_steps}); raise it or shorten schedule.warmup_steps"
            )


def lr_at(step: int, peak_lr: float, s: Schedule) -> float:
    """The learning rate of the step that follows `step` finished ones."""
    if step < s.warmup_steps:
        return peak_lr * (step + 1) / s.warmup_steps
    if s.decay_steps == 0 or step < s.decay_start_step:
        return peak_lr
    steps_left = max(0, s.decay_start_step + s.decay_steps - step)
    return float(peak_lr * (steps_left / s.decay_steps) ** s.decay_power)
