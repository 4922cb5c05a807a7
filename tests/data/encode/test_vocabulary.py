"""A frozen vocabulary answers as a dictionary does, and notices when it is not the one that was frozen."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.encode.vocabulary import COLUMNS, SLOTS, Vocabulary, VocabularyWriter, look_up
from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.errors import DataError
from recmill.files import checksum
from recmill.settings.columns import Column, Schema

MISSING, ABSENT = int(MISSING_CATEGORY), int(ABSENT_CATEGORY)
some_value = st.integers(0, 2**64 - 1) | st.just(ABSENT)  # in a column of one value, a number like any other
any_values = st.lists(some_value.filter(lambda v: v != MISSING), unique=True, max_size=60)


def _schema(*names: str) -> Schema:
    columns = tuple(Column(name=name, role="category", kind="int") for name in names)
    return Schema(name="test", separator=",", columns=columns)


def _freeze(
    directory: Path, columns: list[list[int]], *, missing_is_zero: bool = False, cap: int | None = None
) -> Vocabulary:
    writer = VocabularyWriter(directory, missing_is_zero=missing_is_zero, cap=cap)
    for i, values in enumerate(columns):
        array = np.array(values, np.uint64)
        num_bits = max(map(int.bit_length, values), default=0)
        writer.add(f"cat_{i}", len(values), np.array_split(array, 3), num_bits=num_bits)
    writer.finish()
    return Vocabulary(directory)


@settings(max_examples=60, deadline=None)
@given(
    columns=st.lists(any_values, min_size=1, max_size=3),
    asked=st.lists(st.integers(0, 2**64 - 1), max_size=20),
    missing_is_zero=st.booleans(),
    cap=st.none() | st.integers(3, 20),
)
def test_it_answers_as_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    columns: list[list[int]],
    asked: list[int],
    missing_is_zero: bool,
    cap: int | None,
) -> None:
    vocabulary = _freeze(tmp_path_factory.mktemp("v"), columns, missing_is_zero=missing_is_zero, cap=cap)
    plan = vocabulary.plan(_schema(*(f"cat_{i}" for i in range(len(columns)))))
    for column, values in enumerate(columns):
        rows = min(len(values) + 2, cap or len(values) + 2)
        assert vocabulary.table_rows[column] == rows
        known = {value: (i + 2) % rows for i, value in enumerate(values)}
        questions = [*values, *asked, MISSING, ABSENT]
        raw = np.full((len(questions), len(columns)), 5, np.uint64)
        raw[:, column] = np.array(questions, np.uint64)
        ids = np.empty(raw.shape, np.int64)
        look_up(raw, plan, ids)
        missing = known.get(0, 1) if missing_is_zero else 0
        known |= {MISSING: missing}
        expected = [known.get(value, 1) for value in questions]
        assert ids[:, column].tolist() == expected


def test_only_one_of_several_slots_may_be_empty(tmp_path: Path) -> None:
    vocabulary = _freeze(tmp_path, [[ABSENT, 5], [5, 6]])
    several = Column(name="cat_1", role="category", kind="int", inner_separator="|", max_values=2)
    schema = _schema("cat_0").with_({"columns": (*_schema("cat_0").columns, several)})
    ids = np.empty((2, 3), np.int64)
    look_up(np.array([[ABSENT, 6, ABSENT], [5, MISSING, ABSENT]], np.uint64), vocabulary.plan(schema), ids)
    assert ids.tolist() == [[2, 3, -1], [3, 0, -1]]


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    _freeze(tmp_path, [[1, 2, 3]])
    slots = bytearray((tmp_path / SLOTS).read_bytes())
    slots[9] ^= 1
    (tmp_path / SLOTS).write_bytes(slots)
    with pytest.raises(DataError, match=r"slots\.bin is damaged"):
        Vocabulary(tmp_path)


def test_a_foreign_file_is_noticed(tmp_path: Path) -> None:
    _freeze(tmp_path / "one", [[1, 2, 3]])
    _freeze(tmp_path / "two", [[4, 5, 6]])
    (tmp_path / "one" / SLOTS).write_bytes((tmp_path / "two" / SLOTS).read_bytes())
    with pytest.raises(DataError, match="belongs to another"):
        Vocabulary(tmp_path / "one")


def test_a_truncated_file_is_noticed(tmp_path: Path) -> None:
    _freeze(tmp_path, [[1, 2, 3]])
    (tmp_path / SLOTS).write_bytes((tmp_path / SLOTS).read_bytes()[:-16])
    with pytest.raises(DataError, match="not of the size"):
        Vocabulary(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"columns": [{"name": 1}]}'])
def test_what_is_not_a_vocabulary_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / COLUMNS).write_text(content)
    with pytest.raises(DataError, match="is not a vocabulary"):
        Vocabulary(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    _freeze(tmp_path, [[1]])
    content = json.loads((tmp_path / COLUMNS).read_text())
    (tmp_path / COLUMNS).write_text(json.dumps({**content, "format": "recmill vocabulary 9"}))
    with pytest.raises(DataError, match="vocabulary 9"):
        Vocabulary(tmp_path)


def test_no_directory_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="recmill prepare"):
        Vocabulary(tmp_path / "none")


def test_it_fits_only_its_own_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cat_0; the schema's categories are city"):
        _freeze(tmp_path, [[1]]).plan(_schema("city"))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_slots": 3},
        {"num_slots": 0},
        {"num_slots": -8},
        {"num_slots": 1 << 70},
        {"num_slots": True},
        {"num_values": 5},
        {"num_values": -1},
        {"first_word": 1},
        {"first_word": -8},
        {"table_rows": 0},
        {"table_rows": 6},
        {"table_rows": 5.0},
        {"is_packed": 1},
        {"name": None},
    ],
)
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    _freeze(tmp_path, [[1, 2, 3]])
    content = json.loads((tmp_path / COLUMNS).read_text())
    content["columns"][0] |= changes
    (tmp_path / COLUMNS).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"columns\.json is damaged: what it says of column .* prepare the data anew"):
        Vocabulary(tmp_path)


@pytest.mark.parametrize("slot", [[7, 2], [1, 5], [1, 2**63]], ids=["full", "beyond", "far beyond"])
def test_slots_that_would_mislead_the_search_are_refused(tmp_path: Path, slot: list[int]) -> None:
    """With a right checksum: a table without a free slot has no end, and a row may lie beyond its table."""
    _freeze(tmp_path, [[1, 2, 3]])
    words = np.fromfile(tmp_path / SLOTS, np.uint64)
    words[:] = np.tile(np.array(slot, np.uint64), len(words) // 2)
    words.tofile(tmp_path / SLOTS)
    content = json.loads((tmp_path / COLUMNS).read_text())
    content["slots_sha256"] = checksum(tmp_path / SLOTS, "sha256")
    (tmp_path / COLUMNS).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"slots\.bin is damaged: column .* prepare the data anew"):
        Vocabulary(tmp_path)
