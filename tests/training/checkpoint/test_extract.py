from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recmill.data.encode import entries as vocab_entries
from recmill.data.encode.entries import form_of, read_entries
from recmill.data.encode.vocabulary import Vocabulary, VocabularyWriter
from recmill.errors import RunError
from recmill.settings.columns import Column, Schema
from recmill.training.checkpoint.extract import extract
from recmill.training.checkpoint.reshard import export
from recmill.training.checkpoint.saved_state import open_state
from recmill.training.progress import Progress
from tests.training.checkpoint.saved import save, save_of_two
from tests.training.conftest import Resolve


def test_an_extracted_table_is_the_table(resolve: Resolve, tmp_path: Path) -> None:
    parts = save(resolve("tables.kind=adagrad"), tmp_path / "one")
    save_of_two(parts, Progress(step=2), tmp_path / "two")
    for name in ("one", "two"):
        for table in ("cat_0", "cat_1", "cat_2"):
            out = tmp_path / f"{name}_{table}.npy"
            extracted = extract(open_state(tmp_path / name), table, out)
            np.testing.assert_array_equal(np.load(out), parts.tables.weights(table))
            assert extracted.shape == (50, 4)
            assert extracted.ids_path is None
            assert extracted.note.startswith("ids were made by modulo, from which values cannot be recovered")
        out = tmp_path / f"{name}_state.npy"
        extract(open_state(tmp_path / name), "cat_1", out, "state")
        np.testing.assert_array_equal(np.load(out), parts.tables.state("cat_1"))


def test_what_cannot_be_extracted_is_refused(resolve: Resolve, tmp_path: Path) -> None:
    save(resolve(), tmp_path / "saved", 0)
    state = open_state(tmp_path / "saved")
    with pytest.raises(RunError, match=r"saved has no table 'cat_99'; did you mean cat_9\?"):
        extract(state, "cat_99", tmp_path / "x.npy")
    with pytest.raises(RunError, match=r"x\.csv is to be an \.npy file"):
        extract(state, "cat_9", tmp_path / "x.csv")
    (tmp_path / "there.npy").write_bytes(b"")
    with pytest.raises(RunError, match=r"there\.npy is there already"):
        extract(state, "cat_9", tmp_path / "there.npy")
    export(state, tmp_path / "model")
    with pytest.raises(RunError, match=r"model holds no table_state\*\.safetensors: it is weights alone"):
        extract(open_state(tmp_path / "model"), "cat_9", tmp_path / "x.npy", "state")
    told = extract(open_state(tmp_path / "model"), "cat_9", tmp_path / "x.npy")
    assert "ids were made by modulo" in told.note, "exported weights have their settings beside them"


def columns(*kinds: str) -> Schema:
    made = [Column(name=f"c{i}", role="category", kind=kind) for i, kind in enumerate(kinds)]
    return Schema(name="some", separator="\t", columns=(Column(name="y", role="label", kind="int"), *made))


@pytest.mark.parametrize("cap", [None, 5])
@pytest.mark.parametrize("missing_is_zero", [False, True])
@pytest.mark.parametrize("portion", [1 << 21, 3])
def test_a_vocabulary_gives_its_values_back(
    cap: int | None, missing_is_zero: bool, portion: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocab_entries, "_PORTION_ROWS", portion)
    schema, rng = columns("hex", "int", "string"), np.random.default_rng(3)
    values = [np.unique(rng.integers(0, 1 << bits, 40, np.uint64)) for bits in (32, 60, 60)]
    writer = VocabularyWriter(tmp_path, missing_is_zero=missing_is_zero, cap=cap)
    for column, own in zip(schema.of_role("category"), values, strict=True):
        writer.add(column.name, len(own), [own], num_bits=column.value_bits)
    writer.finish()
    vocabulary = Vocabulary(tmp_path)
    for i, own in enumerate(values):
        portions = list(read_entries(vocabulary, schema, f"c{i}"))
        rows = np.concatenate([each.rows for each in portions])
        is_value = np.concatenate([each.is_value for each in portions])
        found = np.concatenate([each.values for each in portions])
        expected = (np.arange(len(own)) + 2) % (cap or len(own) + 2)
        assert sorted(zip(rows[is_value], found[is_value], strict=True)) == sorted(zip(expected, own, strict=True))
        assert (np.diff(rows) >= 0).all()
        assert rows[~is_value].tolist() == ([1] if missing_is_zero else [0, 1])
    assert [form_of(schema, f"c{i}") for i in range(3)] == ["hex", "int", "hash"]


def test_the_values_of_ids_lie_beside_the_table(tmp_path: Path) -> None:
    from recmill.data.prepared.parquet import write_entries

    schema = columns("hex", "int", "string")
    writer = VocabularyWriter(tmp_path, missing_is_zero=False)
    writer.add("c0", 2, [np.array([0xABC, 7], np.uint64)], num_bits=32)
    writer.add("c1", 1, [np.array([-5], np.int64).view(np.uint64)])
    writer.add("c2", 1, [np.array([12345678901234567890], np.uint64)])
    writer.finish()
    vocabulary, told = Vocabulary(tmp_path), {}
    for name in ("c0", "c1", "c2"):
        path = tmp_path / f"{name}.parquet"
        write_entries(path, read_entries(vocabulary, schema, name), form_of(schema, name))
        told[name] = pq.read_table(path).to_pydict()
    assert told["c0"] == {
        "id": [0, 1, 2, 3],
        "meaning": ["missing", "unknown", "value", "value"],
        "value": [None, None, "00000abc", "00000007"],
    }
    assert told["c1"]["value"] == [None, None, -5]
    assert told["c2"]["value_hash"] == [None, None, 12345678901234567890]
