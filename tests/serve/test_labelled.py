import numpy as np
import pyarrow as pa

from recmill.serve.labelled import ValueCodes
from recmill.slices import MISSING


def test_values_of_slices_are_texts_whatever_the_column_holds() -> None:
    values = ValueCodes()
    values.add(pa.array([b"Oslo", b"caf\xe9", None, b""], pa.binary()), np.ones(4, np.bool_))
    values.add(["Oslo", "", None], np.array([True, True, False]))
    assert values.texts == ["Oslo", "caf\\xe9", MISSING]
    assert values.codes.tolist() == [0, 1, 2, 2, 0, 2]
