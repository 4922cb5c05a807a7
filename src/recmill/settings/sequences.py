"""All settings of a training run on sequences."""

from typing import Literal

from pydantic import Field

from recmill.data.events.windows import Masking, Task
from recmill.embeddings.plan import Sharding
from recmill.embeddings.table import TableOptimizer
from recmill.errors import ConfigError
from recmill.models.sequence.ranker import SequenceModelConfig
from recmill.ranking import Protocol
from recmill.settings.clicks import DenseOptimizer
from recmill.settings.run import Cadence, Stop
from recmill.settings.tree import Settings
from recmill.training.optimize.average import Average
from recmill.training.optimize.schedule import Schedule


class SequenceData(Settings):
    """The prepared directory, and how its sequences become windows and batches."""

    dir: str = ""
    max_length: int = Field(default=50, ge=2, le=4096)  # events that a model sees at once
    # Between the ends of a user's windows; 0: only the newest one. Without a value max_length, so that every event is
    # learnt once; half of it for models that look both ways, so that none stands at the edge of all its windows.
    window_step: int | None = Field(default=None, ge=0)
    global_batch: int = Field(default=128, ge=1)  # windows
    drop_last: bool = False  # a run ends in front of its first batch that is not full
    eval_batch: int = Field(default=256, ge=1)  # users that are scored at once, fewer if the catalogue is large
    max_validation_users: int = Field(default=0, ge=0)  # how many are judged, always the same; 0 = all
    max_test_users: int = Field(default=0, ge=0)
    verify: bool = False  # compare prepared files with their checksums before training

    def model_post_init(self, _context: object) -> None:
        """Refuse windows with holes between them."""
        if self.window_step is not None and self.window_step > self.max_length:
            raise ConfigError(
                f"data.window_step = {self.window_step} leaves events between windows of data.max_length = "
                f"{self.max_length} that no model would see; lower it, or set it to 0 for the newest window alone"
            )

    def step_of_windows(self, task: Task) -> int:
        """Between the ends of a user's windows; 0: only the newest one."""
        if self.window_step is not None:
            return self.window_step
        return self.max_length if task == "next" else self.max_length // 2


class SequenceLoss(Settings):
    """Cross entropy among all items, or among the target and some that are drawn for each batch.

    Drawn items are shared by all events of a batch. Their chance is the same for all (uniform) or grows with how often
    an item occurs in training events, to the power of sampling_power (popularity).
    """

    kind: Literal["full", "sampled"] = "full"
    num_sampled: int | None = Field(default=None, ge=1)  # of sampled alone; without a value: 2048
    sampling: Literal["uniform", "popularity"] | None = None  # of sampled alone; without a value: popularity
    sampling_power: float | None = Field(default=None, gt=0, le=1)  # of popularity alone; without a value: 0.5
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)  # of full alone

    def model_post_init(self, _context: object) -> None:
        """Refuse what would do nothing."""
        for name in ("num_sampled", "sampling", "sampling_power"):
            if self.kind == "full" and (value := getattr(self, name)) is not None:
                raise ConfigError(
                    f"loss.{name} = {value} does nothing for loss.kind = full; leave it out or set loss.kind=sampled"
                )
        if self.sampling == "uniform" and self.sampling_power is not None:
            raise ConfigError(
                f"loss.sampling_power = {self.sampling_power} does nothing for loss.sampling = uniform; leave it out"
            )
        if self.kind == "sampled" and self.label_smoothing:
            raise ConfigError(
                f"loss.label_smoothing = {self.label_smoothing} needs all items; leave it out or set loss.kind=full"
            )


class SequenceUpdate(Settings):
    """How gradients become an update; clip_norm shortens that of the layers, item vectors in them included."""

    clip_norm: float = Field(default=0.0, ge=0)  # 0: as it comes


class SequenceConfig(Settings):
    """A run on sequences, completely."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    threads: int | None = Field(default=None, ge=1, le=1024)  # None: all cores
    data: SequenceData = SequenceData()
    mask: Masking | None = None  # of BERT4Rec alone; without a section: Masking's defaults
    model: SequenceModelConfig
    loss: SequenceLoss = SequenceLoss()
    # Item vectors are weights like others, moved by [dense]. With this section they are rows of the embedding engine,
    # which moves those that a batch has touched and never makes a gradient of the catalogue's size.
    tables: TableOptimizer | None = None
    sharding: Sharding = Sharding()  # of those rows over several processes; of weights every process has a copy
    dense: DenseOptimizer = DenseOptimizer(kind="adam", lr=0.001)
    schedule: Schedule = Schedule()
    average: Average = Average()
    cadence: Cadence = Cadence()
    stop: Stop = Stop()
    update: SequenceUpdate = SequenceUpdate()
    protocol: Protocol = Protocol()

    def model_post_init(self, _context: object) -> None:
        """Refuse sections that do not fit together."""
        assert self.resolved_schedule
        if self.mask is not None and self.model.kind != "bert4rec":
            raise ConfigError(
                f"[mask] does nothing for model.kind = {self.model.kind}: nothing is hidden; leave it out"
            )
        if self.tables is not None and self.loss.kind == "full":
            raise ConfigError(
                "[tables] moves the rows that a batch has touched, and loss.kind = full touches all; "
                "leave it out, or set loss.kind=sampled"
            )
        if self.stop.target_auroc:
            raise ConfigError(f"stop.target_auroc = {self.stop.target_auroc}: lists have no AUROC; leave it out")
        if self.stop.patience and not (self.cadence.evaluate_every_steps or self.cadence.evaluate_every_epochs):
            raise ConfigError(
                f"stop.patience = {self.stop.patience} needs evaluations on the way; set "
                "cadence.evaluate_every_steps or cadence.evaluate_every_epochs"
            )

    @property
    def masking(self) -> Masking:
        """What is hidden from models that look both ways."""
        return self.mask or Masking()

    @property
    def resolved_schedule(self) -> Schedule:
        """The schedule in steps."""
        return self.schedule.resolved(self.stop.max_steps)
