"""The rows that extract gives to known texts are those that the readers gave them."""

from pathlib import Path

import pytest

from recmill.data.logs.opening import open_log
from recmill.data.stream.raw_reader import build_reader
from recmill.data.values.known import collect_values
from recmill.settings.clicks import TrainConfig
from recmill.settings.columns import Column, Schema
from recmill.settings.tree import from_tree
from recmill.training.checkpoint.known_texts import entries_of_texts

LABEL = Column(name="y", role="label", kind="int")
TAGS = Column(name="tags", role="category", kind="string", inner_separator="|", max_values=2, rows=5)
CITY = Column(name="city", role="category", kind="string", rows=7)
SCHEMA = Schema(name="s", separator=",", columns=(LABEL, TAGS, CITY))


@pytest.mark.parametrize("method", ["modulo", "hash"])
@pytest.mark.parametrize("missing", ["own_row", "last_row", "value_zero"])
def test_texts_have_the_rows_that_readers_give_them(method: str, missing: str, tmp_path: Path) -> None:
    cities, tags = [f"city {i}" for i in range(40)], [f"tag{i % 9}|tag{i % 4}" for i in range(40)]
    lines = [f"1,{tag},{city}\n" for tag, city in zip(tags, cities, strict=True)]
    (tmp_path / "rows.csv").write_text("".join(lines))
    tree = {
        "data": {"dir": str(tmp_path), "row_schema": SCHEMA.to_tree()},
        "encoding": {"category": method, "category_missing": missing},
    }
    config = from_tree(TrainConfig, tree)
    whole = open_log(tmp_path / "rows.csv", SCHEMA).whole()
    ids = build_reader(SCHEMA, config.encoding, (5, 7)).read([whole]).columns.ids
    known = collect_values([whole], SCHEMA, 100)
    pairs = [part for tag in tags for part in tag.split("|")]
    expected = {
        "city": dict(zip(cities, ids[:, 2].tolist(), strict=True)),
        "tags": dict(zip(pairs, ids[:, :2].ravel().tolist(), strict=True)),
    }
    for table, own in expected.items():
        entries = entries_of_texts(config, table, known[table])
        texts = [known[table].get(int(value), b"").decode() for value in entries.values[entries.is_value]]
        assert dict(zip(texts, entries.rows[entries.is_value].tolist(), strict=True)) == own
        assert entries.rows[~entries.is_value].tolist() == ([0] if missing == "own_row" else [])
        assert sorted(entries.rows.tolist()) == entries.rows.tolist()
