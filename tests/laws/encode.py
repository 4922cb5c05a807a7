"""Law *encode*: the same rows give the same batches, bit for bit, from raw text on the fly and from prepared files."""

from collections.abc import Iterable

import numpy as np

from recmill.data.batch import Batch, Columns, join_columns


def all_columns(stream: Iterable[Batch]) -> Columns:
    """The rows of all batches, in their order."""
    return join_columns([batch.columns for batch in stream])


def assert_same_rows(actual: Iterable[Batch], expected: Iterable[Batch]) -> None:
    """Batch by batch: as many rows, of the same types and bits."""
    ours, theirs = list(actual), list(expected)
    assert theirs, "no batch proves nothing"
    assert [batch.num_rows for batch in ours] == [batch.num_rows for batch in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one.columns, other.columns, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
