"""All settings of a training run of a click model."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import Field

from recmill.errors import ConfigError
from recmill.settings.click_models import DlrmConfig, ModelConfig
from recmill.settings.data import DataConfig
from recmill.settings.encoding import Encoding
from recmill.settings.optimizers import NO_AVERAGE, Average, DenseOptimizer, Precision, Schedule, TableOptimizer, Update
from recmill.settings.run import Cadence, Device, Processes, Sharding, Stop, TableStore, WarmStart
from recmill.settings.tree import Settings

SEED = "Of first weights, shuffling and dropout."
THREADS = "Threads of layers and kernels; no value: one for each core."
DEVICE = "Where layers and tables are; auto: CUDA if there is a device and TorchRec is installed, otherwise the CPU."
# What everybody types at the top.
TOP_ALIASES = {"epochs": "stop.max_epochs", "batch_size": "data.global_batch"}


class Loss(Settings):
    """Binary cross entropy, with labels y·(1 − s) + s/2 in place of y."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=1, description="The s of smoothed labels.")


class BaselineConfig(Settings):
    """Simple predictors that are trained on the same rows, to compare the result with."""

    enabled: bool = Field(default=True, description="Compare with the click rate and with logistic regression.")
    max_rows: int = Field(
        default=20_000_000, ge=1, description="Rows that logistic regression reads at most, all passes together."
    )


class TrainConfig(Settings):
    """A run, completely."""

    aliases: ClassVar[Mapping[str, str]] = TOP_ALIASES

    seed: int = Field(default=0, ge=0, lt=2**63, description=SEED)
    threads: int | None = Field(default=None, ge=1, le=1024, description=THREADS)
    device: Device = Field(default="auto", description=DEVICE)
    data: DataConfig = Field(description="Files, batches and the reader.")
    encoding: Encoding = Field(default=Encoding(), description="How raw columns become numbers and table rows.")
    model: ModelConfig = Field(default=DlrmConfig(), description="The layers.")
    tables: TableOptimizer = Field(default=TableOptimizer(), description="The optimizer of the embedding tables.")
    dense: DenseOptimizer = Field(default=DenseOptimizer(), description="The optimizer of the layers.")
    schedule: Schedule = Field(default=Schedule(), description="Learning rates over the steps.")
    cadence: Cadence = Field(default=Cadence(), description="How often a run logs, evaluates and saves.")
    stop: Stop = Field(default=Stop(), description="When a run ends.")
    store: TableStore = Field(default=TableStore(), description="Tables that are larger than memory.")
    sharding: Sharding = Field(default=Sharding(), description="Tables over several processes.")
    world: Processes = Field(default=Processes(), description="The processes of a run.")
    update: Update = Field(default=Update(), description="How a batch becomes an update.")
    loss: Loss = Field(default=Loss(), description="What is minimised.")
    average: Average = Field(default=Average(), description="The mean of the weights over later steps.")
    precision: Precision = Field(default=Precision(), description="The arithmetic of the layers.")
    baselines: BaselineConfig = Field(default=BaselineConfig(), description="What the result is compared with.")
    warm_start: WarmStart = Field(default=WarmStart(), description="Weights that a new run begins with.")

    def problems(self) -> Iterator[str]:
        """Sections that do not fit together."""
        schema = self.data.schema_of_rows
        yield from self.model.problems_of_columns(schema.dense_names, schema.category_names)
        yield from problems_of_schedule(self.schedule, self.stop)
        yield from problems_of_stop(self.stop, self.cadence)
        if self.store.is_tiered and self.average.from_step:
            yield (
                f"average.from_step = {self.average.from_step} keeps the mean of all rows in memory, and store.kind = "
                f"{self.store.kind} keeps only some rows there; {NO_AVERAGE} or leave out [store]"
            )
        if self.update.micro_batches > self.data.global_batch:
            yield (
                f"update.micro_batches = {self.update.micro_batches} is more than data.global_batch = "
                f"{self.data.global_batch}, the rows of an update; lower it"
            )

    @property
    def resolved_schedule(self) -> Schedule:
        """The schedule in steps."""
        return self.schedule.resolved(self.stop.max_steps)


def problems_of_schedule(schedule: Schedule, stop: Stop) -> Iterator[str]:
    """Shares of a run that has no number of steps."""
    try:
        schedule.resolved(stop.max_steps)
    except ConfigError as error:
        yield str(error)


def problems_of_stop(stop: Stop, cadence: Cadence) -> Iterator[str]:
    """Limits that need evaluations on the way, where there are none."""
    for name in ("target_auroc", "patience"):
        value = getattr(stop, name)
        if value and not (cadence.evaluate_every_steps or cadence.evaluate_every_epochs):
            yield (
                f"stop.{name} = {value} needs evaluations on the way; set cadence.evaluate_every_steps or "
                "cadence.evaluate_every_epochs"
            )
