"""When things happen in a run, when it is over, where its first values come from, and where its tables are."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from recmill.settings.tree import Settings
from recmill.sizes import parse_size

ShardKind = Literal["table_wise", "column_wise", "row_wise", "data_parallel"]
Engine = Literal["auto", "local", "torchrec"]
Device = Literal["auto", "cpu", "cuda"]
StoreName = Literal["device_mem", "cached_host_mem", "cached_ssd"]
_DEFAULT_BYTES = 1 << 30


class Cadence(Settings):
    """Every how many steps, or passes over the data, things happen; 0 = never.

    The end of a run evaluates and saves in any case. Parts of a pass, such as 0.05, are of its estimated rows.
    """

    log_every_steps: int = Field(default=100, ge=0, description="Steps between two records of loss and speed.")
    evaluate_every_steps: int = Field(default=0, ge=0, description="Steps between two evaluations on validation.")
    evaluate_every_epochs: float = Field(default=0.0, ge=0, description="Epochs, or parts of one, between evaluations.")
    save_every_steps: int = Field(default=0, ge=0, description="Steps between two checkpoints.")
    save_every_minutes: float = Field(default=0.0, ge=0, description="Minutes of training between two checkpoints.")
    save_after_evaluation: bool = Field(default=False, description="Save a checkpoint after each evaluation.")
    save_at_start: bool = Field(default=False, description="Save a checkpoint before the first step.")
    keep_ledger: bool = Field(default=False, description="Record which rows each step took, 16 bytes a row.")
    keep_checkpoints: int = Field(default=2, ge=1, description="How many checkpoints are kept, the newest ones.")
    keep_best: bool = Field(default=True, description="Keep the weights of the best evaluation: a copy on the disk.")


class Stop(Settings):
    """The limits of a run; the first one reached ends it, at the end of that step. 0 = no such limit."""

    aliases: ClassVar[Mapping[str, str]] = {"epochs": "max_epochs", "steps": "max_steps"}

    max_epochs: int = Field(default=1, ge=0, description="Passes over the training rows.")
    max_steps: int = Field(default=0, ge=0, description="Optimizer steps.")
    max_rows: int = Field(default=0, ge=0, description="Training rows, counted once for every time they are used.")
    max_minutes: float = Field(
        default=0.0, ge=0, description="Minutes of training; evaluating and saving do not count."
    )
    target_auroc: float = Field(default=0.0, ge=0, le=1, description="AUROC on validation at which a run may end.")
    patience: int = Field(default=0, ge=0, description="Evaluations in a row that were no better.")


class WarmStart(Settings):
    """A checkpoint or model directory whose tables a new run begins with; a resumed run goes on from its own.

    Rows are taken over by their numbers: row 7 of a table becomes row 7. Rows that a larger table has besides get the
    first values of a new table.
    """

    from_dir: str = Field(default="", description="The checkpoint or model directory; empty: start from the seed.")
    tables: tuple[str, ...] = Field(default=(), description="Tables to take over; empty: all that both have.")
    layers: bool = Field(default=False, description="Take over layers of the same name and shape too.")
    state: bool = Field(default=False, description="Take over the optimizer state of all that is taken over.")

    def problems(self) -> Iterator[str]:
        """What would do nothing."""
        for name in ("tables", "layers", "state"):
            value = getattr(self, name)
            if value and not self.from_dir:
                yield (
                    f"warm_start.{name} = {value!r} does nothing without warm_start.from_dir; "
                    "give a checkpoint with --warm-start PATH"
                )


class Sharding(Settings):
    """How the tables are spread over processes.

    The engine is `local`, our own kernels, for one process on a CPU and `torchrec` otherwise. `kind` is for all tables
    but those named in `by_table`; auto leaves it to TorchRec's planner, which chooses among whole tables, columns and
    rows. Data-parallel tables, a copy in every process, are only for small ones.
    """

    engine: Engine = Field(default="auto", description="What holds the tables: local kernels or TorchRec.")
    kind: Literal["auto"] | ShardKind = Field(default="auto", description="How tables are cut over processes.")
    by_table: Mapping[str, ShardKind] = Field(default={}, description="The kind of single tables, by name.")


class Processes(Settings):
    """How the processes of a run wait for each other."""

    timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=10_000_000,
        description="Seconds that a process waits for the others, when they meet and at every exchange.",
    )


def resolve_bytes(given: object) -> object:
    """`8GiB` as a number of bytes."""
    return parse_size("store.cache_memory =", given) if isinstance(given, str) else given


class TableStore(Settings):
    """Where the rows of embedding tables are: all in memory, or the ones in use in memory and all in files.

    device_mem        all in memory, where the kernels are
    cached_host_mem   a cache of `cache_memory` over an array in the host's memory. On a CPU it saves no memory: it is
                      of use to try a cache without a disk
    cached_ssd        a cache of `cache_memory` over files
    The result is the same to the last bit.
    """

    aliases: ClassVar[Mapping[str, str]] = {"type": "kind", "persistent_path": "dir"}
    choice: ClassVar[str] = "kind"

    kind: StoreName = Field(default="device_mem", description="Where rows are: in memory, or in a cache over a store.")
    dir: str = Field(
        default="", description="Of cached_ssd: the directory of its files; empty: `store` in the run directory."
    )
    cache_memory: Annotated[int, BeforeValidator(resolve_bytes)] = Field(
        default=_DEFAULT_BYTES,
        ge=1 << 12,
        description="Bytes of rows that are kept in memory, as a number or as 8GiB; not of device_mem.",
    )

    def problems(self) -> Iterator[str]:
        """What would do nothing."""
        if self.dir and self.kind != "cached_ssd":
            yield f"store.dir = {self.dir} does nothing for store.kind = {self.kind}; set store.kind=cached_ssd"
        if not self.is_tiered and self.cache_memory != _DEFAULT_BYTES:
            yield (
                f"store.cache_memory = {self.cache_memory:,} does nothing for store.kind = device_mem, where all rows "
                "are in memory; set store.kind=cached_ssd"
            )

    @property
    def is_tiered(self) -> bool:
        """Whether some rows may be out of memory."""
        return self.kind != "device_mem"
