"""All settings of a training run of a sequence model."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field

from recmill.settings.clicks import DEVICE, SEED, THREADS, TOP_ALIASES, problems_of_schedule, problems_of_stop
from recmill.settings.data import VERIFY_HELP, Verify
from recmill.settings.optimizers import Average, DenseOptimizer, Schedule, TableOptimizer
from recmill.settings.protocol import Protocol
from recmill.settings.run import Cadence, Device, Processes, Sharding, Stop
from recmill.settings.sequence_models import SequenceModelConfig
from recmill.settings.tree import Renamed, Settings

Task = Literal["next", "masked"]


class Masking(Settings):
    """Which events of a window are hidden, to be predicted from the others; drawn afresh in every epoch."""

    renamed: ClassVar[Mapping[str, Renamed]] = {
        "frac": Renamed("mask_prob"),
        "only_last_frac": Renamed("only_last_prob"),
    }

    mask_prob: float = Field(default=0.2, gt=0, lt=1, description="The probability that an event is hidden.")
    last: bool = Field(default=False, description="Hide the newest event always, as the published example does.")
    only_last_prob: float = Field(
        default=0.0, ge=0, le=1, description="The probability that a window hides its newest event and no other."
    )
    replace: bool = Field(
        default=False,
        description="Of hidden events show 80 % as the mask, 10 % as another item, 10 % as themselves, as BERT does.",
    )


class SequenceData(Settings):
    """The prepared directory, and how its sequences become windows and batches."""

    aliases: ClassVar[Mapping[str, str]] = {"batch_size": "global_batch"}

    dir: str = Field(default="", description="The directory of prepared sequences.")
    max_length: int = Field(default=50, ge=2, le=4096, description="Events that a model sees at once.")
    window_step: int | None = Field(
        default=None,
        ge=0,
        description="Events between the ends of a user's windows; 0: only the newest window. No value: max_length, or "
        "half of it for bidirectional models.",
    )
    global_batch: int = Field(default=128, ge=1, description="Windows of an optimizer step, all processes together.")
    drop_last: bool = Field(default=False, description="End a run in front of its first batch that is not full.")
    eval_batch: int = Field(default=256, ge=1, description="Users that are scored at once; fewer for large catalogues.")
    max_validation_users: int = Field(default=0, ge=0, description="Users to validate on, always the same; 0: all.")
    max_test_users: int = Field(default=0, ge=0, description="Users to test on, always the same; 0: all.")
    verify: Verify = Field(default="once", description=VERIFY_HELP)

    def problems(self) -> Iterator[str]:
        """Windows with holes between them."""
        if self.window_step is not None and self.window_step > self.max_length:
            yield (
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

    Drawn items are shared by all events of a batch. Their probability is the same for all (uniform) or grows with how
    often an item occurs in training events, to the power of sampling_power (popularity).
    """

    choice: ClassVar[str] = "kind"

    kind: Literal["full", "sampled"] = Field(default="full", description="Among all items, or among drawn ones.")
    num_sampled: int | None = Field(default=None, ge=1, description="Of sampled: items drawn; no value: 2048.")
    sampling: Literal["uniform", "popularity"] | None = Field(
        default=None, description="Of sampled: how items are drawn; no value: popularity."
    )
    sampling_power: float | None = Field(default=None, gt=0, le=1, description="Of popularity; no value: 0.5.")
    label_smoothing: float = Field(default=0.0, ge=0, lt=1, description="Of full: share spread over all items.")

    def problems(self) -> Iterator[str]:
        """What would do nothing."""
        for name in ("num_sampled", "sampling", "sampling_power"):
            if self.kind == "full" and (value := getattr(self, name)) is not None:
                yield f"loss.{name} = {value} does nothing for loss.kind = full; leave it out or set loss.kind=sampled"
        if self.sampling == "uniform" and self.sampling_power is not None:
            yield f"loss.sampling_power = {self.sampling_power} does nothing for loss.sampling = uniform; leave it out"
        if self.kind == "sampled" and self.label_smoothing:
            yield f"loss.label_smoothing = {self.label_smoothing} needs all items; leave it out or set loss.kind=full"


class SequenceUpdate(Settings):
    """How gradients become an update."""

    clip_norm: float = Field(
        default=0.0, ge=0, description="Greatest norm of the gradient, item vectors among weights included; 0: none."
    )


class SequenceConfig(Settings):
    """A run on sequences, completely."""

    aliases: ClassVar[Mapping[str, str]] = TOP_ALIASES
    of_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {"mask": ("bert4rec",)}

    seed: int = Field(default=0, ge=0, lt=2**63, description=SEED)
    threads: int | None = Field(default=None, ge=1, le=1024, description=THREADS)
    device: Device = Field(default="auto", description=DEVICE)
    data: SequenceData = Field(default=SequenceData(), description="The sequences, windows and batches.")
    mask: Masking | None = Field(default=None, description="What is hidden; of BERT4Rec alone.")
    model: SequenceModelConfig = Field(description="The network.")
    loss: SequenceLoss = Field(default=SequenceLoss(), description="What is minimised.")
    tables: TableOptimizer | None = Field(
        default=None,
        description="With this section item vectors are rows of the embedding engine, which moves those that a batch "
        "has touched; without it they are weights like others, moved by [dense].",
    )
    sharding: Sharding = Field(default=Sharding(), description="Of those rows over several processes.")
    world: Processes = Field(default=Processes(), description="The processes of a run.")
    dense: DenseOptimizer = Field(default=DenseOptimizer(kind="adam", lr=0.001), description="The layers' optimizer.")
    schedule: Schedule = Field(default=Schedule(), description="Learning rates over the steps.")
    average: Average = Field(default=Average(), description="The mean of the weights over later steps.")
    cadence: Cadence = Field(default=Cadence(), description="How often a run logs, evaluates and saves.")
    stop: Stop = Field(default=Stop(), description="When a run ends.")
    update: SequenceUpdate = Field(default=SequenceUpdate(), description="How a batch becomes an update.")
    protocol: Protocol = Field(default=Protocol(), description="How lists of items are evaluated.")

    def problems(self) -> Iterator[str]:
        """Sections that do not fit together."""
        yield from problems_of_schedule(self.schedule, self.stop)
        if self.device == "cuda":
            yield "device = cuda: sequence models train on the CPU; leave it out"
        if self.mask is not None and self.model.kind != "bert4rec":
            yield f"[mask] does nothing for model.kind = {self.model.kind}: nothing is hidden; leave it out"
        if self.tables is not None and self.loss.kind == "full":
            yield (
                "[tables] moves the rows that a batch has touched, and loss.kind = full touches all; "
                "leave it out, or set loss.kind=sampled"
            )
        if self.stop.target_auroc:
            yield f"stop.target_auroc = {self.stop.target_auroc}: lists have no AUROC; leave it out"
        else:
            yield from problems_of_stop(self.stop, self.cadence)

    @property
    def masking(self) -> Masking:
        """What is hidden from bidirectional models."""
        return self.mask or Masking()

    @property
    def resolved_schedule(self) -> Schedule:
        """The schedule in steps."""
        return self.schedule.resolved(self.stop.max_steps)
