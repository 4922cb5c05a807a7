"""The Criteo click logs: their fields, and the published sizes of their category tables."""

from recmill.data.shipped import SCHEMAS

NUM_DENSE = 13
NUM_CATEGORIES = 26

CRITEO = SCHEMAS["criteo"]
CRITEO_UNLABELLED = SCHEMAS["criteo-unlabelled"]

# Distinct values per category over the 24 days, capped at 40 million: the table sizes of MLPerf's DLRM.
# fmt: off
PUBLISHED_TABLE_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10,
    2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)
# fmt: on


def scaled_table_rows(scale: float, *, min_rows: int = 3) -> tuple[int, ...]:
    """The published profile with every table shrunk by `scale`, none below `min_rows` or its published size."""
    return tuple(max(min(rows, min_rows), round(rows * scale)) for rows in PUBLISHED_TABLE_ROWS)


def capped_table_rows(total_rows: int) -> tuple[int, ...]:
    """The published profile with the largest tables cut to one common size, so that all together have `total_rows`."""
    low, high = 1, max(PUBLISHED_TABLE_ROWS)
    while low < high:
        cap = (low + high + 1) // 2
        low, high = (cap, high) if sum(min(r, cap) for r in PUBLISHED_TABLE_ROWS) <= total_rows else (low, cap - 1)
    return tuple(min(rows, low) for rows in PUBLISHED_TABLE_ROWS)
