"""Click models over several processes: the tables spread by TorchRec, the layers data-parallel.

A step of n processes on a global batch is the step of one: every process's loss is its share of the mean over all rows,
and gradients are summed. The ids of the next batch travel while this one is computed.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from recmill.data.batch import Position
from recmill.embeddings.plan import ShardPlan, refuse_unfit
from recmill.embeddings.shard import Exchange, ShardedTables, make_shard_plan
from recmill.errors import ConfigError, NonFiniteLoss
from recmill.memory import available_bytes, keep_freed_memory
from recmill.metrics import ClickMetrics
from recmill.models.click.own import BuildLayers
from recmill.models.parts.dropout import train_at
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import SplitName
from recmill.settings.optimizers import NO_AVERAGE
from recmill.training.click.assemble import build_model, table_specs
from recmill.training.click.baselines import compare_rows, train_baselines
from recmill.training.click.evaluate import ClickEvaluation, Score, batch_limit, refuse_no_numbers
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import amount_of, set_learning_rates_at, smoothed
from recmill.training.loop.global_batch import GlobalBatch, GlobalBatches, cut_batches, part_of
from recmill.training.loop.ledger import fingerprint
from recmill.training.loop.limits import least_rows, refuse_no_step, share_of_full
from recmill.training.loop.signals import Signals
from recmill.training.loop.task import StepResult
from recmill.training.optimize.average import WeightMean
from recmill.training.optimize.optimizers import build_dense_optimizer
from recmill.training.optimize.precision import LossScale, autocast
from recmill.training.threads import use_threads
from recmill.world import Group, World


@dataclass(frozen=True)
class ShardedState:
    """All that is trained: the layers, which every process has, and its part of the tables."""

    config: TrainConfig
    model: nn.Module
    tables: ShardedTables
    optimizer: torch.optim.Optimizer
    parallel: nn.Module  # the layers, with their gradients averaged over processes
    loss_scale: LossScale | None = None
    average: WeightMean | None = None  # of local tables alone
    data_hash: str = ""

    @property
    def rows_hash(self) -> str:
        """Of the columns of the rows and the sizes of their tables."""
        return self.config.data.rows_hash


def assemble_sharded(config: TrainConfig, group: Group, build_layers: BuildLayers | None = None) -> ShardedState:
    """A run's state with their first values, which depend on the settings alone and not on the number of processes."""
    world = group.world
    use_threads(config.threads)
    model = build_model(config, build_layers).to(world.device)
    tables = ShardedTables(group.from_main(plan_shards(config, world)), config.tables, seed=config.seed, group=group)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True) if world.size > 1 else model
    keep_freed_memory()
    return ShardedState(config, model, tables, build_dense_optimizer(model, config.dense), parallel)


def plan_shards(config: TrainConfig, world: World, memory_bytes: int | None = None) -> ShardPlan:
    """Where the tables of a run go, by what memory a process really has."""
    if memory_bytes is None:
        memory_bytes = device_memory_bytes(world)
    return make_shard_plan(
        config.sharding,
        table_specs(config),
        config.model.table_dim,
        config.tables,
        world=world,
        rank_batch=-(-config.data.global_batch // world.size),
        memory_bytes=memory_bytes,
    )


def device_memory_bytes(world: World) -> int:
    """What one process may fill: its device's memory, or its share of the machine's."""
    if world.device != "cpu":
        return int(torch.cuda.get_device_properties(world.device).total_memory)
    return available_bytes(world.local_size)


def refuse_sharded(config: TrainConfig, world: World) -> None:
    """Complain about settings that several processes, or TorchRec, cannot honour."""
    refuse_unfit(config.sharding, config.tables, config.model.table_dim, table_specs(config))
    lanes = config.data.lanes_used
    if world.size > lanes:
        raise ConfigError(
            f"{world.size} processes need as many lanes to read, and there are {lanes}; raise data.num_lanes or "
            "data.global_batch, or use fewer processes"
        )
    if config.update.micro_batches > 1:
        raise ConfigError(
            f"update.micro_batches = {config.update.micro_batches} needs the local engine: TorchRec updates its tables "
            "in every backward pass; lower data.global_batch, or train in one process with sharding.engine=local"
        )
    if config.precision.kind == "fp16":
        raise ConfigError(
            "precision.kind = fp16 scales the loss, and TorchRec updates its tables within the backward pass, before "
            "the scale can be taken back; set precision.kind=bf16 or fp32, or train in one process on the CPU"
        )
    if config.average.from_step:
        raise ConfigError(
            f"average.from_step = {config.average.from_step} needs the local engine: the mean is of tables that one "
            f"process holds; set {NO_AVERAGE}, or train in one process with sharding.engine=local"
        )
    if config.model.target_encoding_folds:
        num_folds = config.model.target_encoding_folds
        raise ConfigError(
            f"model.target_encoding_folds = {num_folds} needs the local engine, which sees the ids of all rows; "
            "set it to 0, or train in one process with sharding.engine=local"
        )
    for name in ("batch_norm", "dense_norm"):
        if world.size > 1 and getattr(config.model, name, False):
            raise ConfigError(
                f"model.{name} = true measures a batch as a whole, and {world.size} processes see a part each; "
                "leave it out or train in one process"
            )


@dataclass(frozen=True)
class Sent:
    """A batch whose ids are on their way."""

    batch: GlobalBatch
    exchange: Exchange


class Clock:
    """Where the time of steps goes: reading rows, waiting for the slowest process, exchanging ids and vectors."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._spent_s = {"reading": 0.0, "waiting": 0.0, "exchange": 0.0}

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count the body's seconds."""
        began = time.perf_counter()
        yield
        self._spent_s[what] += time.perf_counter() - began

    def shares(self) -> dict[str, float]:
        """Of all steps so far; what is left is computing."""
        return {f"{what}_frac": round(s / self.total_s, 5) for what, s in self._spent_s.items() if self.total_s}


class ShardedSteps:
    """The steps of one of several processes."""

    def __init__(
        self, state: ShardedState, batches: GlobalBatches, group: Group, signals: Signals, clock: "Clock"
    ) -> None:
        self.clock = clock
        self._state = state
        self._batches = batches
        self._group = group
        self._signals = signals
        self._next: Sent | None = None
        self._has_begun = False
        self._unshared_s = 0.0  # of the step before, behind the moment at which its time was told
        self.trailing_skipped = 0

    def take(self, step: int) -> StepResult | None:
        """Train on a batch while the next one's ids travel."""
        began = time.perf_counter()
        least = least_rows(self._state.config.data)
        sent = self._next if self._has_begun else self._send()
        self._has_begun, self._next = True, None
        if sent is None:
            self.trailing_skipped = self._batches.trailing_skipped
            return None
        if sent.batch.num_rows < least:
            refuse_no_step(step, least)
            return None
        set_learning_rates_at(self._state.config, self._state.tables, self._state.optimizer, step)
        train_at(self._state.parallel, step)
        blocked_s = self._send_next()
        vectors_BFD = self._look_up(sent)
        loss = loss_share(self._state, sent.batch, vectors_BFD, self._group)
        told_at = time.perf_counter()
        mine = [float(loss.detach()), self._unshared_s + told_at - began, blocked_s, float(self._signals.caught)]
        coming = self._group.start_stacking(np.array(mine))
        if self._next:
            self._next.exchange.go_on()
        share = share_of_full(sent.batch.num_rows, self._state.config.data.global_batch)
        known = self._update(loss * share if share < 1 else loss, vectors_BFD, coming, step)
        self._unshared_s = time.perf_counter() - told_at
        self.clock.total_s += time.perf_counter() - began
        # the clock of the main process is everybody's
        _, step_s, blocked_s, _ = known[0].tolist()
        loss_mean, signal_number = float(known[:, 0].mean()), int(known[:, 3].max())
        rows = partial(fingerprint, sent.batch.columns)
        return StepResult(sent.batch, loss_mean, step_s, blocked_s, signal_number, rows)

    def _send_next(self) -> float:
        """Have the next batch's ids sent; how long that waited for rows."""
        began = time.perf_counter()
        self._next = self._send()
        return time.perf_counter() - began

    def _send(self) -> Sent | None:
        with self.clock.timed("reading"):
            batch = next(self._batches, None)
        if batch is None:
            return None
        return Sent(batch, self._state.tables.start(batch.columns.ids, batch.padded_rows))

    def _look_up(self, sent: Sent) -> Tensor:
        with self.clock.timed("exchange"):
            return self._state.tables.look_up(sent.exchange)

    def _update(
        self, loss: Tensor, vectors_BFD: Tensor, coming: Callable[[], NDArray[np.float64]], step: int
    ) -> NDArray[np.float64]:
        """Take the step; what all processes have told of it.

        That comes while gradients are computed, and is awaited before they reach the tables, which they move: all
        processes know the loss before any of them has moved a weight.
        """
        state, told = self._state, list[NDArray[np.float64]]()

        def await_others(_gradient: Tensor) -> None:
            with self.clock.timed("waiting"):
                told.append(coming())
            self._refuse_non_finite(float(told[0][:, 0].mean()), step)

        vectors_BFD.register_hook(await_others)  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]  # the tables are updated in here
        state.tables.num_updates += 1
        if state.config.update.clip_norm:
            nn.utils.clip_grad_norm_(state.model.parameters(), state.config.update.clip_norm)
        state.optimizer.step()
        state.optimizer.zero_grad(set_to_none=True)
        return told[0]

    def _refuse_non_finite(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            self._state.optimizer.zero_grad(set_to_none=True)
            lr = self._state.optimizer.param_groups[0]["lr"]
            raise NonFiniteLoss(
                f"the loss of step {step + 1} is {loss} (learning rate {lr:g} for the layers, "
                f"{self._state.tables.lr:g} for the tables)"
            )


def score(state: ShardedState, batch: GlobalBatch, vectors_BFD: Tensor) -> Tensor:
    """The logits of this process's rows, in float32."""
    columns, padding = batch.columns, batch.padded_rows - batch.columns.num_rows
    dense = torch.from_numpy(columns.dense).to(vectors_BFD.device)
    if padding:
        dense = nn.functional.pad(dense, (0, 0, 0, padding))
    logits: Tensor = state.parallel(dense, vectors_BFD)
    return logits[: columns.num_rows].float()


def loss_share(state: ShardedState, batch: GlobalBatch, vectors_BFD: Tensor, group: Group) -> Tensor:
    """This process's part of the mean loss over all rows, as often as there are processes, whose mean it is then."""
    with autocast(state.config.precision, str(vectors_BFD.device)):
        logits = score(state, batch, vectors_BFD)
    labels = smoothed(torch.from_numpy(batch.columns.labels).to(logits.device), state.config)
    amount, weights = float(batch.num_rows), None
    if state.config.data.schema_of_rows.has_weight:
        amount = float(group.add_up(np.array([amount_of(batch.columns)]))[0]) or 1.0
        weights = torch.from_numpy(batch.columns.weights).to(logits.device)
    total = nn.functional.binary_cross_entropy_with_logits(logits, labels, weights, reduction="sum")
    return total * (group.world.size / amount)


@dataclass
class _Reading:
    """How far an evaluation has read."""

    num_skipped: int = 0
    is_whole: bool = True  # False: a limit left rows out


@dataclass
class ShardedTask:
    """A click model over the processes of a group; all of them call everything."""

    state: ShardedState
    inputs: Inputs
    group: Group
    signals: Signals = field(default_factory=Signals)
    clock: Clock = field(default_factory=Clock)
    score_name = "auroc"

    @property
    def config(self) -> TrainConfig:
        """All settings."""
        return self.state.config

    settings = config

    @property
    def rows_per_epoch(self) -> int:
        """About how many rows there are to train on."""
        return self.inputs.estimate_rows("train")

    @contextmanager
    def open_steps(self, start: Position | None) -> Iterator[ShardedSteps]:
        """Steps from a position on."""
        with self.inputs.open_training(start, part_of(self.group.world)) as stream:
            data = self.config.data
            batches = GlobalBatches(stream, self.group, data.lanes_used, start, full_rows=data.global_batch)
            yield ShardedSteps(self.state, batches, self.group, self.signals, self.clock)

    def evaluate(self, split: SplitName) -> ClickEvaluation:
        """Score the rows of a split, each process some of them; the main one is sent all scores for the metrics."""
        metrics, reading = ClickMetrics(), _Reading()
        has_weight = self.config.data.schema_of_rows.has_weight
        for rows in self._scored(split, reading):
            refuse_no_numbers(rows[:, 0], split)
            if self.group.world.is_main:
                metrics.update(rows[:, 0], rows[:, 1], rows[:, 2] if has_weight else None)
        is_main = self.group.world.is_main
        measured = ClickEvaluation(split, metrics.result(), reading.num_skipped, reading.is_whole) if is_main else None
        evaluation: ClickEvaluation = self.group.from_main(measured)
        return evaluation

    def _scored(
        self, split: SplitName, reading: "_Reading", rival: Score | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """Rows of all processes: the model's logit, the label and, if there is one, the rival's logit."""
        limit, world = batch_limit(self.config.data, split), self.group.world
        part = part_of(World()) if limit else part_of(world)
        has_weight = self.config.data.schema_of_rows.has_weight
        self.state.parallel.eval()
        with self.inputs.open_evaluation(split, part) as stream, torch.no_grad():
            agreed = GlobalBatches(stream, self.group, world.size)
            for batch in cut_batches(stream, self.group, limit) if limit else agreed:
                columns = batch.columns
                vectors_BFD = self.state.tables.look_up(self.state.tables.start(columns.ids, batch.padded_rows))
                logits = score(self.state, batch, vectors_BFD).cpu().numpy()
                others = [] if rival is None else [rival(columns)]
                weights = [columns.weights] if has_weight else []
                yield self.group.join_rows(np.stack([logits, columns.labels, *others, *weights], axis=1))
                reading.num_skipped += batch.num_skipped
            if limit:
                reading.is_whole = next(stream, None) is None
                reading.num_skipped += stream.trailing_skipped if reading.is_whole else 0
            else:
                reading.num_skipped += agreed.trailing_skipped

    def compare(self, split: SplitName, weights: str) -> dict[str, Any]:
        """The click rate and logistic regression, on the same rows; every process trains the same regression."""
        if not self.config.baselines.enabled:
            return {}
        baselines = train_baselines(self.config, self.inputs)
        rows = self._scored(split, _Reading(), baselines.score)
        return {**compare_rows(self.config, baselines, rows), "compared_weights": weights}

    def log_values(self) -> dict[str, float]:
        """The learning rates, and where the time went."""
        rates = {"dense_lr": self.state.optimizer.param_groups[0]["lr"], "table_lr": self.state.tables.lr}
        return {**rates, **self.clock.shares()}

    def is_finite(self) -> bool:
        """Whether every weight that this process holds is a number."""
        pieces = (piece.values for piece in self.state.tables.pieces() if piece.what == "weights")
        return all(bool(t.isfinite().all()) for t in chain(self.state.model.state_dict().values(), pieces))
