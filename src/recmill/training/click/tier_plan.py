"""What tables in tiers will need: memory for the cache and to know where rows are, and room on the disk."""

from dataclasses import dataclass
from typing import Any

from recmill.embeddings.store.cache import bytes_per_slot
from recmill.embeddings.store.layout import RecordLayout
from recmill.embeddings.store.log import SegmentLog
from recmill.embeddings.store.residency import BYTES_PER_ROW
from recmill.errors import ConfigError
from recmill.settings.clicks import TrainConfig
from recmill.settings.run import StoreName

_DEAD_FRAC = 0.5  # records that do not count, as a share of those that do, before segments are emptied
_OPEN_SEGMENTS = 3  # what is written, what is emptied, and what is emptied into
_FOOTER_BYTES = 16  # of a record
_MOST_SUGGESTED = 0.25  # of the bytes of all rows
_LEAST_BATCHES = 4  # that a suggested cache holds
_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class TierPlan:
    """Tables whose rows are in a cache over a store."""

    kind: StoreName
    num_rows: int
    layout: RecordLayout
    cache_memory: int
    num_kept: int  # checkpoints

    @property
    def num_slots(self) -> int:
        """Rows that the cache holds."""
        return min(self.num_rows, self.cache_memory // self.layout.record_bytes)

    @property
    def cache_bytes(self) -> int:
        """Of the rows in the cache, with what is known of them."""
        return self.num_slots * bytes_per_slot(self.layout)

    @property
    def index_bytes(self) -> int:
        """To know where each row is; and, if the host's memory holds them all, the rows."""
        below = self.layout.record_bytes if self.kind == "cached_host_mem" else 0
        return self.num_rows * (BYTES_PER_ROW + below)

    @property
    def memory_bytes(self) -> int:
        """Of all."""
        return self.cache_bytes + self.index_bytes

    def live_bytes(self, num_rows: int) -> int:
        """Of the records of so many rows in files; rows that are never trained on have none."""
        return self.layout.num_blocks(num_rows) * self.layout.block_bytes + _FOOTER_BYTES * num_rows

    def disk_bytes(self, num_rows: int | None = None) -> int:
        """The most that the files of a run take if so many rows (all) are trained on."""
        if self.kind != "cached_ssd":
            return 0
        live = self.live_bytes(min(self.num_rows, self.num_rows if num_rows is None else num_rows))
        segments = SegmentLog(self.layout, num_rows=self.num_rows, store_key=0)
        segments.close()
        open_bytes = min(self.layout.num_blocks(segments.segment_records) * self.layout.block_bytes, live)
        return int((1 + _DEAD_FRAC) * live) + _OPEN_SEGMENTS * open_bytes

    def budget_within(self, room: int) -> int:
        """The largest `store.cache_memory` with which the tables take no more than this."""
        return (room - self.index_bytes) * self.layout.record_bytes // bytes_per_slot(self.layout)

    def lower_cache(self, room: int) -> str:
        """What to do so that the tables take no more than this."""
        fits = self.budget_within(room) // _MIB
        if fits > 0:
            return f"set store.cache_memory={fits}MiB or less"
        return (
            f"lower data.max_rows_per_table: to know where {self.num_rows:,} rows are takes {self.index_bytes:,} bytes"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {
            "kind": self.kind,
            "record_bytes": self.layout.record_bytes,
            "cache_rows": self.num_slots,
            "cache_bytes": self.cache_bytes,
            "index_bytes": self.index_bytes,
            "disk_bytes": self.disk_bytes(),
            "kept_checkpoints": self.num_kept,
        }


def plan_tiers(config: TrainConfig) -> TierPlan | None:
    """Of a run whose tables are in tiers."""
    return _plan(config) if config.store.is_tiered else None


def _plan(config: TrainConfig) -> TierPlan:
    dim, store = config.model.table_dim, config.store
    layout = RecordLayout(dim, config.tables.state_width(dim))
    num_rows = sum(config.data.num_table_rows)
    return TierPlan(store.kind, num_rows, layout, store.cache_memory, config.cadence.keep_checkpoints)


def suggest_budget(config: TrainConfig, room: int) -> str:
    """The settings with which rows lie in files and the tables take no more than this; empty if none do."""
    plan, num_rows = _plan(config), sum(config.data.num_table_rows)
    layout = plan.layout
    least = _LEAST_BATCHES * config.data.global_batch * sum(config.data.slots_per_column) * bytes_per_slot(layout)
    most = min(plan.budget_within(room), int(_MOST_SUGGESTED * num_rows * layout.record_bytes))
    if most < max(least, _MIB):
        return ""
    budget = f"{most // _GIB}GiB" if most >= 4 * _GIB else f"{most // _MIB}MiB"
    try:
        config.with_({"store": {"kind": "cached_ssd", "cache_memory": budget}})
    except ConfigError:  # something else does not go with tiers
        return ""
    return f"--set store.kind=cached_ssd --set store.cache_memory={budget}"
