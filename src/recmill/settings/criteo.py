"""The Criteo click logs: their fields, and the published sizes of their category tables."""

from recmill.settings.schemas import SCHEMAS

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
# Values that occur at least three times, and the two rows that TorchRec's preparation keeps for others.
FREQUENT_TABLE_ROWS = (
    45_833_188, 36_746, 17_245, 7_413, 20_243, 3, 7_114, 1_441, 62, 29_275_261, 1_572_176, 345_138, 10,
    2_209, 11_267, 128, 4, 974, 14, 48_937_457, 11_316_796, 40_094_537, 452_104, 12_606, 104, 35,
)
# The same with the large tables cut to a hundredth or a tenth: Ray's example.
REDUCED_TABLE_ROWS = (
    458_331, 36_746, 17_245, 7_413, 20_243, 3, 7_114, 1_441, 62, 292_752, 157_217, 345_138, 10,
    2_209, 11_267, 128, 4, 974, 14, 489_374, 113_167, 400_945, 452_104, 12_606, 104, 35,
)
# Distinct values modulo 40 million: OneFlow's example.
ONEFLOW_TABLE_ROWS = (
    39_884_407, 39_043, 17_289, 7_420, 20_263, 3, 7_120, 1_543, 63, 38_532_952, 2_953_546, 403_346, 10,
    2_208, 11_938, 155, 4, 976, 14, 39_979_772, 25_641_295, 39_664_985, 585_935, 12_972, 108, 36,
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
