"""Click models as a job: which data they open, what they check, and where their tables are."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path

from recmill.embeddings.tiered import TieredTables
from recmill.errors import ConfigError
from recmill.files import STORE_DIR, refuse_unwritable, require_free_space
from recmill.lock import locked
from recmill.memory import limit_bytes
from recmill.models.click.own import BuildLayers
from recmill.settings.clicks import TrainConfig
from recmill.settings.run import WarmStart
from recmill.training.checkpoint.take_over import refuse_unfit_tables
from recmill.training.click.assemble import assemble, table_specs
from recmill.training.click.inputs import Inputs, refuse_large_batch, verify_inputs
from recmill.training.click.plan import refuse_large_run
from recmill.training.click.task import ClickTask
from recmill.training.click.tier_plan import plan_tiers
from recmill.training.device import require_torchrec
from recmill.training.loop.signals import Signals
from recmill.training.loop.task import Task
from recmill.training.optimize.precision import refuse_precision, use_tf32
from recmill.world import Group, World


class ClickJob:
    """A run of a click model."""

    def __init__(self, config: TrainConfig, build_layers: BuildLayers | None = None) -> None:
        self._config = config
        self._build_layers = build_layers
        self._inputs: Inputs | None = None
        self._open = ExitStack()  # what ends when the data is closed

    def uses_torchrec(self, world: World) -> bool:
        """Always of several processes and on CUDA, otherwise if asked to."""
        engine, needs_it = self._config.sharding.engine, world.size > 1 or world.device != "cpu"
        if needs_it and self._config.store.is_tiered:
            raise ConfigError(
                f"store.kind = {self._config.store.kind} is for one process on a CPU, and this run has {world.size} on "
                f"{world.device}; leave out [store], or start one process"
            )
        if engine == "local" and needs_it:
            raise ConfigError(
                f"sharding.engine = local is for one process on a CPU, and this run has {world.size} on "
                f"{world.device}; leave it out"
            )
        if needs_it or engine == "torchrec":
            alone = "sharding.engine = torchrec" if world.device == "cpu" else f"a run on {world.device}"
            require_torchrec(f"a run of {world.size} processes" if world.size > 1 else alone)
        return needs_it or engine == "torchrec"

    def verify(self) -> None:
        """Compare the checksums of prepared files, as the settings say."""
        verify_inputs(self._config)

    @contextmanager
    def opened(self, *, is_verified: bool = False) -> Iterator[None]:
        """A body in which the files are open."""
        config = self._config.with_({"data": {"verify": "never"}}) if is_verified else self._config
        with Inputs(config) as self._inputs, ExitStack() as self._open:
            yield

    def refuse_unfit(self, world: World) -> None:
        """Complain about batches that the data does not fill, and about what TorchRec or the device cannot do."""
        assert self._inputs is not None
        refuse_precision(self._config.precision, world.device)
        refuse_large_batch(self._config, self._inputs)
        if self.uses_torchrec(world):
            from recmill.training.click.sharded import refuse_sharded  # TorchRec costs seconds

            refuse_sharded(self._config, world)
        if world.device == "cpu":
            refuse_large_run(self._config, limit_bytes() // world.local_size, world.size)

    def refuse_warm_start(self, settings: WarmStart) -> None:
        """Complain about tables of other shapes."""
        shapes = {spec.name: (spec.num_rows, self._config.model.table_dim) for spec in table_specs(self._config)}
        refuse_unfit_tables(settings, shapes, self._config)

    def keep_values(self, run_dir: Path) -> None:
        """Keep texts of string categories, which the weights know by hashes, beside the run."""
        assert self._inputs is not None
        self._inputs.keep_values(run_dir)

    def _require_disk(self, directory: Path) -> None:
        """Complain about a disk that the rows which this run can meet would fill."""
        tiers, data, stop = plan_tiers(self._config), self._config.data, self._config.stop
        assert self._inputs is not None
        num_rows = ceil(self._inputs.estimate_rows("train"))
        if stop.max_steps:
            num_rows = min(num_rows, stop.max_steps * data.global_batch)
        if tiers is not None:
            needed = tiers.disk_bytes(num_rows * sum(data.slots_per_column))
            require_free_space(directory, needed, f"the store of rows (store.dir = {directory})")

    def _open_store(self, tables: TieredTables, run_dir: Path | None, *, is_new: bool) -> None:
        """Give rows that leave the cache a place; of a model that is not trained, none does."""
        self._open.callback(tables.close)
        if run_dir is not None and tables.log is not None:
            directory = Path(self._config.store.dir or run_dir / STORE_DIR)
            refuse_unwritable(directory)
            if is_new:
                self._require_disk(directory)
            directory.mkdir(parents=True, exist_ok=True)
            self._open.enter_context(locked(directory))
            tables.write_into(directory)

    def build_task(self, group: Group, signals: Signals, *, is_new: bool, run_dir: Path | None = None) -> Task:
        """The model, its tables and its data, in this process or over all of them."""
        assert self._inputs is not None
        if not self.uses_torchrec(group.world):
            state = replace(assemble(self._config, self._build_layers), data_hash=self._inputs.identity)
            if isinstance(state.tables, TieredTables):
                self._open_store(state.tables, run_dir, is_new=is_new)
            return ClickTask(state, self._inputs, signals)
        from recmill.training.click.sharded import ShardedTask, assemble_sharded  # TorchRec costs seconds

        use_tf32(self._config.precision)
        sharded = replace(assemble_sharded(self._config, group, self._build_layers), data_hash=self._inputs.identity)
        return ShardedTask(sharded, self._inputs, group, signals)
