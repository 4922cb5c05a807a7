import pytest

from recmill.data.stream.ahead import ReadAhead
from recmill.settings.clicks import TrainConfig
from recmill.settings.tree import from_tree
from recmill.training.click.inputs import choose_read_ahead


@pytest.mark.parametrize(
    ("threads", "data", "expected"),
    [
        (None, {}, ReadAhead(8, 0)),  # the layers have all cores: all of them parse, between steps
        (99, {}, ReadAhead(8, 0)),
        (7, {}, ReadAhead(2, 4)),  # a core is left
        (7, {"prefetch_batches": 0}, ReadAhead(8, 0)),
        (None, {"prefetch_batches": 6}, ReadAhead(2, 6)),
        (None, {"reader_threads": 3}, ReadAhead(3, 0)),
        (1, {"reader_threads": 5, "prefetch_batches": 1}, ReadAhead(5, 1)),
    ],
)
def test_reading_goes_on_in_the_background_if_a_core_is_left(
    threads: int | None, data: dict[str, int], expected: ReadAhead
) -> None:
    tree: dict[str, object] = {"data": {"table_rows": [10] * 26, **data}} | (
        {} if threads is None else {"threads": threads}
    )
    assert choose_read_ahead(from_tree(TrainConfig, tree), num_cores=8) == expected
