"""The step that all raw rows share, wherever they come from: raw columns to encoded columns."""

from typing import NamedTuple

from recmill.data.batch import Columns
from recmill.data.encode.transforms import (
    CategoryPlan,
    DensePlan,
    category_plan,
    dense_plan,
    encode_categories,
    encode_dense,
)
from recmill.data.encode.vocabulary import NO_LOOK_UP, LookUp, Vocabulary, look_up
from recmill.data.text.fields import RawColumns
from recmill.jit import njit
from recmill.settings.columns import Schema
from recmill.settings.encoding import Encoding


class RowEncoder(NamedTuple):
    """What the kernel needs: the plans of the columns, and whether a vocabulary stands for those of the categories."""

    dense: DensePlan
    categories: CategoryPlan
    look_up: LookUp
    use_look_up: bool


def build_encoder(
    schema: Schema, encoding: Encoding, table_rows: tuple[int, ...], vocabulary: Vocabulary | None
) -> RowEncoder:
    """For the columns of a schema, and tables of these sizes."""
    return RowEncoder(
        dense_plan(encoding, schema),
        category_plan(encoding, schema, table_rows),
        vocabulary.plan(schema) if vocabulary else NO_LOOK_UP,
        vocabulary is not None,
    )


@njit(nogil=True, cache=True)
def encode_rows(raw: RawColumns, num_rows: int, encoder: RowEncoder, out: Columns, at: int) -> None:
    """The first so many raw rows, to their place among the encoded."""
    encode_dense(raw.numbers[:num_rows], encoder.dense, out.dense[at : at + num_rows])
    if encoder.use_look_up:
        look_up(raw.values[:num_rows], encoder.look_up, out.ids[at : at + num_rows])
    else:
        encode_categories(raw.values[:num_rows], encoder.categories, out.ids[at : at + num_rows])
    out.labels[at : at + num_rows] = raw.labels[:num_rows]
    if len(out.weights):
        out.weights[at : at + num_rows] = raw.weights[:num_rows]
