"""Learning rates as a pure function of the step."""

from recmill.settings.optimizers import Schedule

LEAST_LR = 1e-7  # of MLPerf's decay


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
