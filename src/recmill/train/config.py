"""All settings of a training run."""

from typing import Literal

from pydantic import Field

from recmill.config import Settings
from recmill.data.config import DataConfig
from recmill.data.encode import Encoding
from recmill.embeddings.table import TableOptimizer
from recmill.models.dlrm import DlrmConfig
from recmill.models.kind import ModelConfig
from recmill.train.schedule import Schedule


class DenseOptimizer(Settings):
    """The rule that moves the layers' weights: `torch.optim.SGD` or `torch.optim.Adagrad`."""

    kind: Literal["sgd", "adagrad"] = "adagrad"
    lr: float = Field(default=0.02, gt=0)
    eps: float = Field(default=1e-8, ge=0)


class Cadence(Settings):
    """Every how many steps things happen; 0 = never (the end of a run evaluates and saves in any case)."""

    log_every_steps: int = Field(default=100, ge=0)
    evaluate_every_steps: int = Field(default=0, ge=0)
    save_every_steps: int = Field(default=0, ge=0)
    keep_checkpoints: int = Field(default=2, ge=1)


class Stop(Settings):
    """The limits of a run; the first one reached ends it, at the end of that step. 0 = no such limit."""

    max_epochs: int = Field(default=1, ge=0)
    max_steps: int = Field(default=0, ge=0)
    max_rows: int = Field(default=0, ge=0)
    max_minutes: float = Field(default=0.0, ge=0)  # of training: evaluating and saving do not count


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

    def model_post_init(self, _context: object) -> None:
        """Refuse a model that asks for columns the data do not have."""
        schema = self.data.schema_of_rows
        self.model.refuse_strange_columns(schema.dense_names, schema.category_names)
