"""Law *resume*: for every batch *i*, reopening at `batch_i.position` yields exactly the rest."""

import json
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from recmill.data.batch import Batch, Position
from recmill.data.stream.stream import Stream


def assert_resumes_everywhere(
    open_stream: Callable[[Position | None], Stream], *, num_batches: int | None = None
) -> None:
    """Whoever stops after any batch and goes on from its position misses nothing; `num_batches` ends an endless one."""
    with open_stream(None) as stream:
        batches = list(islice(stream, num_batches))
        trailing_skipped = stream.trailing_skipped
    assert batches, "a stream without batches proves nothing"
    for spent, batch in enumerate(batches, start=1):
        with open_stream(_written_and_read(batch.position)) as stream:
            rest = list(islice(stream, None if num_batches is None else num_batches - spent))
            assert_same_batches(rest, batches[spent:])
            if num_batches is None:
                assert stream.trailing_skipped == trailing_skipped, spent


def assert_same_batches(actual: Sequence[Batch], expected: Sequence[Batch]) -> None:
    """The same rows in the same order, bit for bit, with the same positions and counts of bad rows."""
    assert [batch.position for batch in actual] == [batch.position for batch in expected]
    assert [batch.num_skipped for batch in actual] == [batch.num_skipped for batch in expected]
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one.columns.dense.view(np.uint32), other.columns.dense.view(np.uint32))
        np.testing.assert_array_equal(one.columns.ids, other.columns.ids)
        np.testing.assert_array_equal(one.columns.labels, other.columns.labels)


def _written_and_read(position: Position) -> Position:
    """A position comes back from a checkpoint, not from memory."""
    return Position.from_json(json.loads(json.dumps(position.to_json())))
