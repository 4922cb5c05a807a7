"""How weights are moved: optimizers of layers and tables, learning-rate schedule, averaging, precision, updates."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from recmill.errors import ConfigError
from recmill.settings.table_rules import TABLE_RULES
from recmill.settings.tree import Settings

_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
DENSE_NUMBERS: dict[str, dict[str, float]] = {
    "sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "adagrad": {"eps": 1e-8, "initial_accumulator": 0.0, "weight_decay": 0.0},
    "adam": {**_ADAM, "weight_decay": 0.0},
    "adamw": {**_ADAM, "weight_decay": 0.01},
}
# as settings, for messages
NO_AVERAGE = "average.from_step=0, average.every_steps=1 and average.recent_frac=1"
MAX_LR = 1e30  # far beyond any use, and a step with it is still a number
MAX_NUMBER = 1e18  # weights and state are float32: a square of more would be no number
_LR_NAMES = {"learning_rate": "lr"}
_OF_KIND = "Without a value, the default of the kind."


def numbers_of_kind(settings: Settings, kind: str, defaults: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The numbers a section's kind takes, given or by default."""
    given = {name: getattr(settings, name) for name in defaults[kind]}
    return {name: defaults[kind][name] if value is None else value for name, value in given.items()}


def useless_numbers(
    settings: Settings, section: str, kind: str, defaults: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """A message for each number that the section's kind has no use for."""
    taken = defaults[kind]
    for name in sorted({name for numbers in defaults.values() for name in numbers} - taken.keys()):
        if (value := getattr(settings, name)) is not None:
            yield (
                f"{section}.{name} = {value} does nothing for {section}.kind = {kind}; leave it out "
                f"({kind} takes {', '.join(['lr', *taken])})"
            )


class DenseOptimizer(Settings):
    """The rule that moves the layers' weights: `torch.optim.SGD`, `Adagrad`, `Adam` or `AdamW`."""

    aliases: ClassVar[Mapping[str, str]] = _LR_NAMES

    kind: Literal["sgd", "adagrad", "adam", "adamw"] = Field(default="adagrad", description="The optimizer.")
    lr: float = Field(default=0.02, gt=0, le=MAX_LR, description="The learning rate, at the peak of the schedule.")
    eps: float | None = Field(default=None, ge=0, le=MAX_NUMBER, description=f"Added to the denominator. {_OF_KIND}")
    momentum: float | None = Field(default=None, ge=0, lt=1, description=f"Of sgd. {_OF_KIND}")
    weight_decay: float | None = Field(
        default=None, ge=0, le=MAX_NUMBER, description=f"L2 penalty, or adamw's decay. {_OF_KIND}"
    )
    initial_accumulator: float | None = Field(default=None, ge=0, le=MAX_NUMBER, description=f"Of adagrad. {_OF_KIND}")
    beta1: float | None = Field(default=None, ge=0, lt=1, description=f"Of adam and adamw. {_OF_KIND}")
    beta2: float | None = Field(default=None, ge=0, lt=1, description=f"Of adam and adamw. {_OF_KIND}")

    def problems(self) -> Iterator[str]:
        """Numbers the optimizer does not take."""
        yield from useless_numbers(self, "dense", self.kind, DENSE_NUMBERS)

    @property
    def numbers(self) -> dict[str, float]:
        """What the optimizer is given beside the learning rate."""
        return numbers_of_kind(self, self.kind, DENSE_NUMBERS)

    @property
    def state_width(self) -> int:
        """How many numbers the optimizer keeps for each weight."""
        if self.kind == "sgd":
            return int(self.numbers["momentum"] > 0)
        return {"adagrad": 1, "adam": 2, "adamw": 2}[self.kind]


def _known_rule(kind: str) -> str:
    if kind not in TABLE_RULES:
        raise ConfigError(f"tables.kind = {kind!r} is not a table optimizer; choose from {', '.join(TABLE_RULES)}")
    return kind


class TableOptimizer(Settings):
    """The rule that moves the rows a batch has touched; all others, and their state, stay as they are.

    With g the sum of a row's gradients over the batch, plus weight_decay·w, and t the updates of the tables so far,
    counted for all rows together as `torch.optim.SparseAdam` and FBGEMM do:
    sgd               m ← momentum·m + g,  w ← w − lr·m                 no m without momentum
    adagrad           m ← m + g²,          w ← w − lr·g / (√m + eps)    m of the row's shape
    rowwise_adagrad   s ← s + mean(g²),    w ← w − lr·g / (√s + eps)    one s for the row
    adam              m ← β₁m + (1−β₁)g,   v ← β₂v + (1−β₂)g²,          w ← w − lr·m̂ / (√v̂ + eps)
                      with m̂ = m / (1−β₁ᵗ), v̂ = v / (1−β₂ᵗ)
    rowwise_adam      the same with v ← β₂v + (1−β₂)mean(g²), one for the row
    ftrl              n′ = n + g²,         z ← z + g − (n′^−p − n^−p)·w / lr,     n ← n′
                      w ← 0 if |z| ≤ l1, otherwise (sign(z)·l1 − z) / (n^−p / lr + l2), p = lr_power
    FTRL knows a weight's first value only by its first step: with initial_accumulator = 0 that is one of Adagrad's,
    with more (OneFlow's default is 0.1) most of the first value is forgotten.
    """

    aliases: ClassVar[Mapping[str, str]] = _LR_NAMES

    kind: Annotated[str, AfterValidator(_known_rule)] = Field(
        default="rowwise_adagrad", description=f"The optimizer of the tables: {', '.join(TABLE_RULES)}."
    )
    lr: float = Field(default=0.02, gt=0, le=MAX_LR, description="The learning rate, at the peak of the schedule.")
    eps: float | None = Field(default=None, ge=0, le=MAX_NUMBER, description=f"Added to the denominator. {_OF_KIND}")
    momentum: float | None = Field(default=None, ge=0, lt=1, description=f"Of sgd. {_OF_KIND}")
    weight_decay: float | None = Field(
        default=None, ge=0, le=MAX_NUMBER, description=f"L2 penalty of touched rows. {_OF_KIND}"
    )
    initial_accumulator: float | None = Field(
        default=None, ge=0, le=MAX_NUMBER, description=f"Of adagrad and ftrl. {_OF_KIND}"
    )
    beta1: float | None = Field(default=None, ge=0, lt=1, description=f"Of adam. {_OF_KIND}")
    beta2: float | None = Field(default=None, ge=0, lt=1, description=f"Of adam. {_OF_KIND}")
    l1: float | None = Field(default=None, ge=0, le=MAX_NUMBER, description=f"L1 penalty of ftrl. {_OF_KIND}")
    l2: float | None = Field(default=None, ge=0, le=MAX_NUMBER, description=f"L2 penalty of ftrl. {_OF_KIND}")
    lr_power: float | None = Field(default=None, ge=-1, le=0, description=f"Exponent of ftrl. {_OF_KIND}")

    def problems(self) -> Iterator[str]:
        """Numbers the rule does not take."""
        yield from useless_numbers(self, "tables", self.kind, self._all_numbers())

    @staticmethod
    def _all_numbers() -> dict[str, dict[str, float]]:
        return {kind: dict(rule.numbers) for kind, rule in TABLE_RULES.items()}

    @property
    def numbers(self) -> dict[str, float]:
        """What the rule is given beside the learning rate."""
        return numbers_of_kind(self, self.kind, self._all_numbers())

    def state_width(self, dim: int) -> int:
        """How many numbers the rule keeps for each row."""
        return TABLE_RULES[self.kind].state_width(self.numbers, dim)

    def accumulator_width(self, dim: int) -> int:
        """How many of those, the first ones, start at `initial_accumulator`."""
        return TABLE_RULES[self.kind].accumulator_width(dim)


class Schedule(Settings):
    """How the learning rates of tables and layers go up and down together; a length of 0 leaves that part out.

    polynomial   linear warm-up from lr / warmup_steps, plateau, decay to 0 by a polynomial; constant if nothing is set
    mlperf       as TorchRec's LRPolicyScheduler: the plateau is where the warm-up stopped, one step short of lr, the
                 rate is lr when the decay starts, never under 1e-7, and stays behind the decay where it came to
    oneflow      as OneFlow's SequentialLR: the warm-up starts at 0, so that the first step changes nothing
    step         linear warm-up, then lr times change_factor, once more at each of the change_steps, or of the
                 change_fracs of stop.max_steps
    """

    kind: Literal["polynomial", "mlperf", "oneflow", "step"] = Field(default="polynomial", description="The shape.")
    warmup_steps: int = Field(default=0, ge=0, description="Steps in which the learning rate rises.")
    decay_start_step: int = Field(default=0, ge=0, description="The step at which it begins to fall.")
    decay_steps: int = Field(default=0, ge=0, description="Steps in which it falls.")
    warmup_frac: float | None = Field(default=None, ge=0, le=1, description="warmup_steps as a share of max_steps.")
    decay_frac: float | None = Field(
        default=None, ge=0, le=1, description="The last share of max_steps, in which the learning rate falls."
    )
    decay_power: float = Field(default=2.0, gt=0, description="The exponent of the fall: 1 is a straight line.")
    change_steps: tuple[int, ...] = Field(default=(), description="Of kind step: the steps at which it changes.")
    change_fracs: tuple[float, ...] = Field(default=(), description="Of kind step: the same as shares of max_steps.")
    change_factor: float = Field(default=0.1, gt=0, description="Of kind step: what it is multiplied with.")

    def problems(self) -> Iterator[str]:
        """A decay that begins before the warm-up ends, and settings that the kind has no use for."""
        yield from self._problems_of_fracs()
        if self.decay_steps and self.decay_start_step < self.warmup_steps:
            yield (
                f"schedule.decay_start_step ({self.decay_start_step}) comes before the warm-up ends "
                f"({self.warmup_steps}); raise it or shorten schedule.warmup_steps"
            )
        if self.kind == "step":
            yield from self._problems_of_changes()
        elif self.change_steps or self.change_fracs:
            name = "change_steps" if self.change_steps else "change_fracs"
            yield (
                f"schedule.{name} = {list(getattr(self, name))} does nothing for schedule.kind = {self.kind}; "
                "leave it out or set schedule.kind=step"
            )

    def _problems_of_fracs(self) -> Iterator[str]:
        for frac, names in (("warmup_frac", ("warmup_steps",)), ("decay_frac", ("decay_steps", "decay_start_step"))):
            for name in names:
                if getattr(self, frac) is not None and getattr(self, name):
                    yield f"schedule.{frac} and schedule.{name} say the same thing twice; give one of them"
        if (total := (self.warmup_frac or 0.0) + (self.decay_frac or 0.0)) > 1:
            yield f"schedule.warmup_frac and schedule.decay_frac add up to {total:g}, more than a whole run; lower one"
        if self.decay_frac and self.kind == "step":
            yield f"schedule.decay_frac = {self.decay_frac} does nothing for schedule.kind = step; leave it out"

    def _problems_of_changes(self) -> Iterator[str]:
        if self.decay_steps:
            yield (
                f"schedule.decay_steps = {self.decay_steps} does nothing for schedule.kind = step; "
                "set it to 0 or choose schedule.kind=polynomial"
            )
        if bool(self.change_steps) == bool(self.change_fracs):
            yield (
                f"schedule.kind = step needs either schedule.change_steps ({list(self.change_steps)}) or "
                f"schedule.change_fracs ({list(self.change_fracs)}); set one of them"
            )
        first = min(self.change_steps, default=self.warmup_steps)
        if first < self.warmup_steps:
            yield (
                f"schedule.change_steps ({first}) comes before the warm-up ends ({self.warmup_steps}); "
                "raise it or shorten schedule.warmup_steps"
            )
        for frac in self.change_fracs:
            if not 0 < frac < 1:
                yield f"schedule.change_fracs holds {frac}; a share of the run is between 0 and 1"

    def resolved(self, max_steps: int) -> "Schedule":
        """The same with shares of a run of so many steps as numbers of steps."""
        fracs = {name: getattr(self, name) for name in ("change_fracs", "warmup_frac", "decay_frac")}
        given = {name: frac for name, frac in fracs.items() if frac}
        if not given:
            return self
        if not max_steps:
            name, frac = next(iter(given.items()))
            shown = f"{list(frac)} are shares" if isinstance(frac, tuple) else f"{frac} is a share"
            raise ConfigError(
                f"schedule.{name} = {shown} of stop.max_steps, which is 0; set stop.max_steps, or give "
                f"schedule.{name.replace('_fracs', '_steps').replace('_frac', '_steps')} instead"
            )
        steps: dict[str, Any] = {}
        if self.change_fracs:
            steps["change_steps"] = tuple(round(frac * max_steps) for frac in self.change_fracs)
        if self.warmup_frac:
            steps["warmup_steps"] = round(self.warmup_frac * max_steps)
        if self.decay_frac:
            steps["decay_steps"] = max(1, round(self.decay_frac * max_steps))
            steps["decay_start_step"] = max_steps - steps["decay_steps"]
        return self.with_({"change_fracs": (), "warmup_frac": None, "decay_frac": None, **steps})


class Average(Settings):
    """The mean of the weights after step `from_step`, and after each `every_steps`-th step behind it.

    With `recent_frac` the newest weights count most: of n that were taken in, about the newest n · recent_frac, so that
    what was learnt early is forgotten however long a run is.

    Training goes on from the weights themselves; evaluations, best weights and the saved model are the mean.
    It takes as much memory as the weights of layers and tables once more, and a pass over them each time it is due.
    """

    from_step: int = Field(default=0, ge=0, description="The first step whose weights are averaged; 0: no average.")
    every_steps: int = Field(default=1, ge=1, description="Steps between weights that are averaged.")
    recent_frac: float = Field(default=1.0, gt=0, le=1, description="About the share that counts; 1: all alike.")

    def problems(self) -> Iterator[str]:
        """What would do nothing."""
        for name in ("every_steps", "recent_frac"):
            value = getattr(self, name)
            if value != 1 and not self.from_step:
                yield f"average.{name} = {value} does nothing without average.from_step; set both, or {NO_AVERAGE}"

    def due(self, step: int) -> bool:
        """Whether the weights after so many finished steps belong to the mean."""
        return 0 < self.from_step <= step and (step - self.from_step) % self.every_steps == 0

    def weight_of(self, number: int) -> float:
        """By how much the mean moves towards the weights that are taken in as its `number`-th, counted from 1."""
        return 1 / max(1.0, number * self.recent_frac)


class Precision(Settings):
    """In what precision a training step computes; weights, tables, optimizers and evaluations stay float32.

    fp16 multiplies the loss by a scale and its gradients by the inverse. A step whose gradients are not finite changes
    neither layers nor tables. A dynamic scale is halved by it, and doubled by growth_interval good steps in a row.
    """

    kind: Literal["fp32", "bf16", "fp16"] = Field(default="fp32", description="The type of the layers' arithmetic.")
    tf32: bool = Field(default=False, description="Compute float32 products in 19 bits; of CUDA.")
    scaling: Literal["dynamic", "static"] | None = Field(default=None, description="Of fp16; no value: dynamic.")
    scale: float | None = Field(default=None, ge=1e-12, description="Of fp16: the first, or only, loss scale.")
    growth_interval: int | None = Field(default=None, ge=1, description="Of fp16: good steps until the scale doubles.")

    def problems(self) -> Iterator[str]:
        """What would do nothing."""
        for name in ("scaling", "scale", "growth_interval"):
            value = getattr(self, name)
            if value is not None and self.kind != "fp16":
                yield (
                    f"precision.{name} = {value} does nothing for precision.kind = {self.kind}: only fp16 needs its "
                    "loss scaled; leave it out"
                )
        if self.scaling == "static" and self.growth_interval is not None:
            yield (
                f"precision.growth_interval = {self.growth_interval} does nothing for precision.scaling = static; "
                "leave it out or set precision.scaling=dynamic"
            )


class Update(Settings):
    """How a batch becomes one update of layers and tables."""

    micro_batches: int = Field(
        default=1, ge=1, description="Parts of a batch, computed one after the other; gradients are summed."
    )
    clip_norm: float = Field(default=0.0, ge=0, description="Greatest norm of the layers' gradient; 0: no clipping.")
