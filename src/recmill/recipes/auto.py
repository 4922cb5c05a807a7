"""Settings chosen from the data: the size of the log decides batch, learning rates, regularisation and length."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2, sqrt
from typing import Any

from recmill.recipes import criteo_small
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import Average, Schedule
from recmill.settings.run import Cadence, Stop

_BASE_BATCH, _MAX_BATCH = 128, 2048
_STEPS_WANTED = 700  # in an epoch: enough to learn from, few enough for seconds
_LEAST_STEPS, _MAX_EPOCHS = 1_200, 20
_SMALL_LOG, _LARGE_LOG = 300_000, 3_000_000
_MANY_UNSEEN = 0.3  # of the validation rows


@dataclass(frozen=True)
class Choice:
    """A setting, its value, and why."""

    key: str
    value: Any
    reason: str

    def describe(self) -> str:
        """For a person."""
        return f"{self.key} = {self.value}: {self.reason}"


def build() -> TrainConfig:
    """For your own table: `recmill train auto --data FILE` chooses columns, sizes and lengths from the data.

    A wide and deep model with click rates of values, dropout, and the mean of its later weights. Without data the
    numbers are those of 100,000 rows.
    """
    small = criteo_small.build()
    return TrainConfig(
        data=DataConfig(row_schema="kaggle", table_rows=(10_000,) * 26, holdout_frac=0.2),
        model=small.model,
        tables=small.tables,
        dense=small.dense,
        schedule=Schedule(warmup_frac=0.02, decay_frac=0.3, decay_power=1.0),
        average=Average(from_step=625, every_steps=4),
        cadence=Cadence(log_every_steps=100, evaluate_every_epochs=0.5),
        stop=Stop(max_epochs=2, max_steps=1250, patience=3),
    ).with_({choice.key: choice.value for choice in choose(80_000)})


def holdout_frac(num_rows: int) -> float:
    """The share of the last rows that validates and tests."""
    return 0.2 if num_rows < _SMALL_LOG else 0.1 if num_rows < _LARGE_LOG else 0.04


def min_count(num_rows: int) -> int:
    """How often a value occurs at least to have a row of its own."""
    return 2 if num_rows < _SMALL_LOG else 4


def choose_statistics(unseen: Mapping[str, float]) -> list[Choice]:
    """Whether click rates of values are inputs, by the share of validation rows whose value is new, of each column.

    The layers come to rely on them, and new values have none.
    """
    name = max(unseen, key=lambda each: unseen[each], default=None)
    if name is None or unseen[name] <= _MANY_UNSEEN:
        return []
    reason = f"{unseen[name]:.0%} of the validation rows have a new value of {name}, of which there is no click rate"
    return [Choice("model.target_encoding_folds", 0, reason)]


def choose(num_rows: int) -> list[Choice]:
    """The settings for so many training rows."""
    exponent = round(log2(max(1.0, num_rows / _STEPS_WANTED)))
    batch = min(_MAX_BATCH, max(_BASE_BATCH if num_rows >= 20_000 else 32, 2**exponent))
    scale = max(1.0, sqrt(batch / _BASE_BATCH))
    steps_per_epoch = ceil(num_rows / batch)
    epochs = min(_MAX_EPOCHS, max(2, ceil(_LEAST_STEPS / steps_per_epoch)))
    steps = epochs * steps_per_epoch
    recent_frac = 1.0 if epochs == 2 else 0.5  # of many epochs, the early ones are forgotten
    rows = f"{num_rows:,} training rows"
    return [
        Choice("data.global_batch", batch, f"about {_STEPS_WANTED} steps an epoch of {rows}"),
        Choice("data.num_lanes", 16, "rows of few neighbouring blocks are mixed"),
        Choice("data.block_rows", 256, "small blocks mix a small log well"),
        Choice("dense.lr", round(0.001 * scale, 6), f"0.001 at a batch of {_BASE_BATCH}, by the root of the batch"),
        Choice("tables.lr", round(0.01 * scale, 6), f"0.01 at a batch of {_BASE_BATCH}, by the root of the batch"),
        Choice(
            "stop.max_epochs", epochs, f"{_LEAST_STEPS} steps or more, and at most {_MAX_EPOCHS} passes over {rows}"
        ),
        Choice("stop.max_steps", steps, f"{epochs} epochs of {rows}"),
        Choice("average.from_step", steps_per_epoch, "the weights are a mean from the second epoch on"),
        Choice("average.recent_frac", recent_frac, "of that mean, about the share that counts, the newest"),
        Choice("average.every_steps", 4, "a mean of every fourth step is as good and costs less"),
    ]
