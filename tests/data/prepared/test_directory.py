"""Prepared rows give the batches that raw text gives, resume as it does, and are rejected when they are not whole."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from recmill.data.encode.presets import PRESETS
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.logs.header import open_source
from recmill.data.logs.split import find_days, split_by_day, split_tail
from recmill.data.prepared.directory import Prepared, read_facts
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.stream.stream import Order, Stream
from recmill.data.stream.text_reader import TextReader
from recmill.errors import DataError, UserError
from recmill.files import write_listing
from recmill.settings.columns import Column, Schema
from recmill.settings.criteo import CRITEO
from recmill.settings.data import SPLIT_NAMES, Access, SplitName
from tests.laws.encode import all_columns, assert_same_rows
from tests.laws.resume import assert_resumes_everywhere

STORES: tuple[Any, ...] = ("npy", "parquet")


@pytest.fixture(scope="module")
def prepared_dir(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made = dict[tuple[Any, ...], Path]()

    def make(store: str = "npy", preset: str = "torchrec", seed: int | None = None) -> Path:
        if (key := (store, preset, seed)) not in made:
            out_dir = tmp_path_factory.mktemp("prepared") / "out"
            splits = split_by_day(find_days(tiny_world_dir))
            modulo = 300 if preset.startswith("oneflow") else None
            job = PrepareJob(splits, CRITEO, out_dir, preset, store, seed=seed, part_bytes=50_000, modulo=modulo)  # type: ignore[arg-type]
            prepare(job)
            made[key] = out_dir
        return made[key]

    return make


@pytest.mark.parametrize("access", ["mapped", "memory", "streamed"])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("preset", list(PRESETS))
def test_law_encode(
    tiny_world_dir: Path, prepared_dir: Callable[..., Path], store: str, preset: str, access: Access
) -> None:
    """Each split, batch by batch: raw text encoded on the fly with the same vocabulary, and prepared rows."""
    directory = prepared_dir(store, preset)
    facts = read_facts(directory)
    vocabulary = Vocabulary(directory / "vocabulary") if facts.encoding.category == "vocabulary" else None
    reader = TextReader(CRITEO, facts.encoding, facts.table_rows, "fail", vocabulary)
    splits, prepared = split_by_day(find_days(tiny_world_dir)), Prepared(directory, access)
    for name in SPLIT_NAMES:
        with (
            Stream(reader, splits.of(name), Order(137)) as raw,
            Stream(prepared.reader, prepared.segments(name), Order(137, block_extent=64)) as stored,
        ):
            assert_same_rows(stored, raw)
    prepared.close()
    splits.close()


@pytest.mark.parametrize("store", STORES)
def test_law_resume(prepared_dir: Callable[..., Path], store: str) -> None:
    prepared = Prepared(prepared_dir(store))
    order = Order(300, seed=3, epochs=2, num_lanes=7, block_extent=40)
    assert_resumes_everywhere(lambda start: Stream(prepared.reader, prepared.segments("train"), order, start=start))
    prepared.close()


def test_a_shuffled_stream_hands_out_every_row_once(prepared_dir: Callable[..., Path]) -> None:
    prepared = Prepared(prepared_dir())
    with Stream(prepared.reader, prepared.segments("train"), Order(100)) as stream:
        in_order = all_columns(stream)
    with Stream(prepared.reader, prepared.segments("train"), Order(100, 5, 1, 4, 30)) as stream:
        shuffled = all_columns(stream)
    rows = [np.concatenate([c.dense, c.ids, c.labels[:, None]], axis=1) for c in (in_order, shuffled)]
    assert (rows[0] != rows[1]).any()
    first, second = (r[np.lexsort(r.T)] for r in rows)
    np.testing.assert_array_equal(first, second)
    prepared.close()


@pytest.mark.parametrize("store", STORES)
def test_a_missing_truncated_or_altered_file_is_named(tmp_path: Path, tiny_world_dir: Path, store: Any) -> None:
    splits = split_by_day(find_days(tiny_world_dir))
    manifest = prepare(PrepareJob(splits, CRITEO, tmp_path / "out", store=store))
    name = next(name for name in manifest["files"] if name.endswith(("_sparse.npy", ".parquet")))
    path, content = tmp_path / "out" / name, (tmp_path / "out" / name).read_bytes()
    path.unlink()
    with pytest.raises(UserError, match=f"{path} is missing"):
        Prepared(tmp_path / "out")
    path.write_bytes(content[:-8])
    with pytest.raises(UserError, match=f"{path} is not the file"):
        Prepared(tmp_path / "out")
    altered = bytearray(content)
    altered[len(content) // 2] ^= 1
    path.write_bytes(altered)
    Prepared(tmp_path / "out", verify="never").close()  # sizes alone do not tell
    with pytest.raises(UserError, match=f"{path} is not the file"):
        Prepared(tmp_path / "out", verify="always")
    path.write_bytes(content)
    Prepared(tmp_path / "out", verify="always").close()


def _edit(directory: Path, **changes: object) -> None:
    path = directory / "manifest.json"
    manifest = {**json.loads(path.read_text()), **changes}
    del manifest["manifest_sha256"]
    files = manifest.pop("files")
    write_listing(directory, files, **manifest)


def test_a_directory_that_is_not_prepared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"has no manifest\.json: it is not a directory that `recmill prepare` finished"
    ):
        read_facts(tmp_path)


def test_a_manifest_of_another_kind_is_refused(tmp_path: Path, tiny_world_dir: Path) -> None:
    prepare(PrepareJob(split_by_day(find_days(tiny_world_dir)), CRITEO, tmp_path / "out"))
    _edit(tmp_path / "out", format="something else")
    with pytest.raises(DataError, match="is of format 'something else'"):
        read_facts(tmp_path / "out")


def test_a_manifest_that_promises_more_rows_is_refused(tmp_path: Path, tiny_world_dir: Path) -> None:
    prepare(PrepareJob(split_by_day(find_days(tiny_world_dir)), CRITEO, tmp_path / "out"))
    subsets: dict[SplitName, list[tuple[str, int, int]]] = {
        "train": [("day_0", 0, 1001)],
        "validation": [("day_2", 0, 500)],
        "test": [("day_2", 500, 1000)],
    }
    _edit(tmp_path / "out", subsets=subsets, rows={"train": 1001, "validation": 500, "test": 500})
    with pytest.raises(DataError, match=r"has 1000 rows, and manifest\.json speaks of 1001"):
        Prepared(tmp_path / "out")


def test_law_encode_of_the_users_own_columns(tmp_path: Path) -> None:
    """A CSV with a header, floats, strings and several values in one field, whose last lines are held out."""
    schema = Schema(
        name="shop",
        separator=",",
        header=True,
        columns=(
            Column(name="price", role="dense", kind="float"),
            Column(name="bought", role="label", kind="int"),
            Column(name="genres", role="category", kind="string", inner_separator="|", max_values=3),
            Column(name="city", role="category", kind="string"),
        ),
    )
    random = Random(4)
    genres = ["war", "love", "crime", "war|love", "love|crime|war|sea", "", "sea||war"]
    prices = ["", "1.5", "-2", "30.25"]
    lines = [
        f"{random.choice(prices)},{random.randrange(2)},{random.choice(genres)},c{random.randrange(9)}"
        for _ in range(400)
    ]
    (tmp_path / "shop.csv").write_text("\n".join(["price,bought,genres,city", *lines]) + "\n")
    splits = split_tail([open_source(tmp_path / "shop.csv", schema).whole()], frac=0.25, num_rows=None)
    manifest = prepare(PrepareJob(splits, schema, tmp_path / "out", part_bytes=1_000))
    assert manifest["rows"] == {"train": 300, "validation": 50, "test": 50}
    facts, prepared = read_facts(tmp_path / "out"), Prepared(tmp_path / "out")
    assert facts.schema == schema
    vocabulary = Vocabulary(tmp_path / "out" / "vocabulary")
    reader = TextReader(schema, facts.encoding, facts.table_rows, "fail", vocabulary)
    for name in SPLIT_NAMES:
        with (
            Stream(reader, splits.of(name), Order(64)) as raw,
            Stream(prepared.reader, prepared.segments(name), Order(64, block_extent=16)) as stored,
        ):
            assert_same_rows(stored, raw)
    # rows of the genres' table, the most frequent first, counted by hand
    counts = Counter(genre for line in lines[:300] for genre in [g for g in line.split(",")[2].split("|") if g][:3])
    rows = {genre: i + 2 for i, genre in enumerate(sorted(counts, key=lambda g: -counts[g]))}
    assert len(set(counts.values())) == len(counts), "a tie would prove nothing"
    with Stream(prepared.reader, prepared.segments("train"), Order(300)) as stream:
        ids = all_columns(stream).ids
    for line, row in zip(lines[:300], ids.tolist(), strict=True):
        known = [rows[genre] for genre in line.split(",")[2].split("|") if genre][:3]
        assert row[:3] == (known + [-1] * (3 - len(known)) if known else [0, -1, -1])
    prepared.close()
