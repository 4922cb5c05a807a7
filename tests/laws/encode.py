"""Law *encode*: the same rows give the same batches, bit for bit, from raw text on the fly and from prepared files."""

from collections.abc import Iterable

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
        for name in Columns._fields:
            a, b = getattr(one.columns, name), getattr(other.columns, name)
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert a.tobytes() == b.tobytes(), name
