"""Columns are cut without copying, and a position survives being written down."""

import json

from hypothesis import given
from hypothesis import strategies as st

from recmill.data.batch import Batch, Cursor, Position, empty_columns

cursors = st.builds(Cursor, st.integers(0, 2**40), st.integers(0, 2**40))


def test_columns_have_a_row_each() -> None:
    columns = empty_columns(7, 3, 2)
    assert (columns.dense.shape, columns.ids.shape, columns.labels.shape) == ((7, 3), (7, 2), (7,))
    assert [str(column.dtype) for column in columns] == ["float32", "int64", "float32", "float32"]
    assert columns.num_rows == 7


def test_weights_are_there_if_asked_for_and_are_cut_with_the_rows() -> None:
    assert empty_columns(7, 3, 2).rows(2, 5).weights.shape == (0,)
    assert empty_columns(7, 3, 2, has_weight=True).rows(2, 5).weights.shape == (3,)


def test_rows_are_a_view() -> None:
    columns = empty_columns(7, 3, 2)
    part = columns.rows(2, 5)
    columns.dense[:], columns.ids[:], columns.labels[:] = 1, 2, 3
    columns.dense[2:5], columns.ids[2:5], columns.labels[2:5] = 4, 5, 6
    assert part.num_rows == 3
    assert part.dense.tolist() == [[4, 4, 4]] * 3
    assert part.ids.tolist() == [[5, 5]] * 3
    assert part.labels.tolist() == [6] * 3


@given(positions=st.lists(cursors).map(tuple))
def test_a_position_survives_being_written_down(positions: tuple[Cursor, ...]) -> None:
    position = Position(positions)
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position


def test_a_batch_has_as_many_rows_as_its_columns() -> None:
    assert Batch(empty_columns(5, 1, 1), Position(())).num_rows == 5
