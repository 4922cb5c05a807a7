"""All settings of a training run."""

from typing import Literal

from pydantic import Field

from recmill.data.encode.transforms import Encoding
from recmill.embeddings.plan import Sharding
from recmill.embeddings.table import TableOptimizer
from recmill.errors import ConfigError
from recmill.models.click.dlrm import DlrmConfig
from recmill.settings.click_models import ModelConfig
from recmill.settings.data import DataConfig
from recmill.settings.run import Cadence, Stop
from recmill.settings.tree import Settings, numbers_of_kind
from recmill.training.checkpoint.warm_start import WarmStart
from recmill.training.optimize.average import Average
from recmill.training.optimize.precision import Precision
from recmill.training.optimize.schedule import Schedule

_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
DENSE_NUMBERS: dict[str, dict[str, float]] = {
    "sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "adagrad": {"eps": 1e-8, "initial_accumulator": 0.0, "weight_decay": 0.0},
    "adam": {**_ADAM, "weight_decay": 0.0},
    "adamw": {**_ADAM, "weight_decay": 0.01},
}


class DenseOptimizer(Settings):
    """The rule that moves the layers' weights: `torch.optim.SGD`, `Adagrad`, `Adam` or `AdamW`."""

    kind: Literal["sgd", "adagrad", "adam", "adamw"] = "adagrad"
    lr: float = Field(default=0.02, gt=0)
    # Without a value: the default of the kind. A value for a kind that has no use for it is refused.
    eps: float | None = Field(default=None, ge=0)
    momentum: float | None = Field(default=None, ge=0, lt=1)
    weight_decay: float | None = Field(default=None, ge=0)
    initial_accumulator: float | None = Field(default=None, ge=0)
    beta1: float | None = Field(default=None, ge=0, lt=1)
    beta2: float | None = Field(default=None, ge=0, lt=1)

    def model_post_init(self, _context: object) -> None:
        """Refuse numbers the rule does not take."""
        assert self.numbers

    @property
    def numbers(self) -> dict[str, float]:
        """What the rule is given beside the learning rate."""
        return numbers_of_kind(self, "dense", self.kind, DENSE_NUMBERS)

    @property
    def state_width(self) -> int:
        """How many numbers the rule keeps for each weight."""
        if self.kind == "sgd":
            return int(self.numbers["momentum"] > 0)
        return {"adagrad": 1, "adam": 2, "adamw": 2}[self.kind]


class Update(Settings):
    """How a batch becomes one update of layers and tables.

    A batch may be cut into micro-batches, which need less memory at a time; their gradients, of layers and tables, are
    summed and applied once. clip_norm shortens the layers' gradient to that length; the tables' is not part of it.
    """

    micro_batches: int = Field(default=1, ge=1)
    clip_norm: float = Field(default=0.0, ge=0)  # 0: as it comes


class Loss(Settings):
    """Binary cross entropy, with labels y·(1 − s) + s/2 in place of y."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class TrainConfig(Settings):
    """A run, completely."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    threads: int | None = Field(default=None, ge=1, le=1024)  # None: all cores
    data: DataConfig
    encoding: Encoding = Encoding()
    model: ModelConfig = DlrmConfig()
    tables: TableOptimizer = TableOptimizer()
    dense: DenseOptimizer = DenseOptimizer()
    schedule: Schedule = Schedule()
    cadence: Cadence = Cadence()
    stop: Stop = Stop()
    sharding: Sharding = Sharding()
    update: Update = Update()
    loss: Loss = Loss()
    average: Average = Average()
    precision: Precision = Precision()
    warm_start: WarmStart = WarmStart()

    def model_post_init(self, _context: object) -> None:
        """Refuse sections that do not fit together."""
        schema = self.data.schema_of_rows
        self.model.refuse_strange_columns(schema.dense_names, schema.category_names)
        assert self.resolved_schedule
        for name in ("target_auroc", "patience"):
            value = getattr(self.stop, name)
            if value and not (self.cadence.evaluate_every_steps or self.cadence.evaluate_every_epochs):
                raise ConfigError(
                    f"stop.{name} = {value} needs evaluations on the way; set cadence.evaluate_every_steps or "
                    "cadence.evaluate_every_epochs"
                )
        if self.update.micro_batches > self.data.global_batch:
            raise ConfigError(
                f"update.micro_batches = {self.update.micro_batches} is more than data.global_batch = "
                f"{self.data.global_batch}, the rows of an update; lower it"
            )

    @property
    def resolved_schedule(self) -> Schedule:
        """The schedule in steps."""
        return self.schedule.resolved(self.stop.max_steps)
