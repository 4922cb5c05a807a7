"""When things happen in a run, and when it is over."""

from pydantic import Field

from recmill.settings.tree import Settings


class Cadence(Settings):
    """Every how many steps, or passes over the data, things happen; 0 = never.

    The end of a run evaluates and saves in any case. Parts of a pass, such as 0.05, are of its estimated rows.
    """

    log_every_steps: int = Field(default=100, ge=0)
    evaluate_every_steps: int = Field(default=0, ge=0)
    evaluate_every_epochs: float = Field(default=0.0, ge=0)
    save_every_steps: int = Field(default=0, ge=0)
    save_every_minutes: float = Field(default=0.0, ge=0)  # of training
    save_after_evaluation: bool = False
    save_at_start: bool = False
    keep_ledger: bool = False  # which rows each step took, 16 bytes a row
    keep_checkpoints: int = Field(default=2, ge=1)
    keep_best: bool = True  # the weights of the best evaluation so far; costs a copy of them on the disk


class Stop(Settings):
    """The limits of a run; the first one reached ends it, at the end of that step. 0 = no such limit."""

    max_epochs: int = Field(default=1, ge=0)
    max_steps: int = Field(default=0, ge=0)
    max_rows: int = Field(default=0, ge=0)
    max_minutes: float = Field(default=0.0, ge=0)  # of training: evaluating and saving do not count
    target_auroc: float = Field(default=0.0, ge=0, le=1)  # on validation
    patience: int = Field(default=0, ge=0)  # evaluations in a row that were no better
