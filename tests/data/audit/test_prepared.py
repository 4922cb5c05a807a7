"""Prepared rows are told as numpy tells them, alike from both stores; damage is found and named."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recmill.data.audit import prepared as module
from recmill.data.audit.prepared import audit_prepared
from recmill.data.audit.report import AuditReport, Limits
from recmill.data.logs.header import open_source
from recmill.data.logs.split import Splits, find_days, split_by_day
from recmill.data.prepared.directory import Prepared
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.stream.stream import Order, Stream
from recmill.settings.criteo import CRITEO
from recmill.settings.data import SPLIT_NAMES
from recmill.settings.multi_hot import MultiHot
from tests.data.lines import CITY, LABEL, PRICE, SHOPS, schema_of
from tests.laws.encode import all_columns
from tests.laws.hostile import tell, told_of

Prepare = Callable[[Any], Path]


@pytest.fixture(scope="module")
def prepared_dir(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    made = dict[str, Path]()

    def make(store: Any) -> Path:
        if store not in made:
            made[store] = tmp_path_factory.mktemp("prepared") / store
            splits = split_by_day(find_days(tiny_world_dir))
            prepare(PrepareJob(splits, CRITEO, made[store], store=store, part_bytes=60_000))
        return made[store]

    return make


def _audit(directory: Path, max_overlap: float = 1.0, threads: int = 2) -> AuditReport:
    return audit_prepared(directory, Limits(max_overlap_frac=max_overlap), threads=threads)


@pytest.mark.parametrize("store", ["npy", "parquet"])
def test_stored_rows_are_told_as_numpy_tells_them(prepared_dir: Prepare, store: str) -> None:
    directory = prepared_dir(store)
    report, prepared = _audit(directory), Prepared(directory)
    with Stream(prepared.reader, prepared.segments("train"), Order(2000)) as stream:
        rows = all_columns(stream)
    assert (report.train.num_rows, report.train.num_clicks) == (2000, int(rows.labels.sum()))
    assert report.test.num_rows == 1000
    assert report.prepared is not None
    assert report.prepared.rows == {"train": 2000, "validation": 500, "test": 500}
    assert report.prepared.table_rows == prepared.facts.table_rows
    assert (report.reasons, report.prepared.damage) == ((), ())
    for column, numbers in zip(report.dense, rows.dense.T, strict=True):
        assert (column.minimum, column.maximum) == (numbers.min(), numbers.max())
        assert column.missing_frac == 0
    for category, ids in zip(report.categories, rows.ids.T, strict=True):
        counts = Counter(ids.tolist())
        assert category.num_distinct == len(counts)
        assert {int(top.value): top.rows for top in category.top_values}.items() <= counts.items()
    prepared.close()


def test_stores_threads_and_chunks_make_no_difference(prepared_dir: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _audit(prepared_dir("npy"))
    assert _audit(prepared_dir("parquet"), threads=1) == expected
    monkeypatch.setattr(module, "CHUNK_ROWS", 333)
    assert _audit(prepared_dir("npy"), threads=3) == expected


def test_of_multi_hot_rows_the_own_ids_are_told_and_all_are_looked_at(
    tiny_world_dir: Path, tmp_path: Path, prepared_dir: Prepare
) -> None:
    splits, rule = split_by_day(find_days(tiny_world_dir)), MultiHot((1, 3, *(1,) * 24))
    prepare(PrepareJob(splits, CRITEO, tmp_path / "out", multi_hot=rule))
    assert _audit(tmp_path / "out") == _audit(prepared_dir("npy"))
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["table_rows"][1] //= 2
    tell(tmp_path / "out", lambda _directory, found: found.update(table_rows=manifest["table_rows"]))
    (reason,) = _audit(tmp_path / "out").reasons
    prepared = Prepared(tmp_path / "out")
    ids = np.concatenate([s.source.read(s.start, s.stop).ids for n in SPLIT_NAMES for s in prepared.segments(n)])
    prepared.close()
    num_outside = int((ids[:, 1:4] >= manifest["table_rows"][1]).sum())
    assert ids.shape == (3000, 28)
    assert reason.startswith(
        f"cat_1: ids outside its table of {manifest['table_rows'][1]:,} rows ({num_outside:,}, the"
    )


def test_rows_in_training_and_test_are_a_reason(tiny_world_dir: Path, tmp_path: Path) -> None:
    for day in (0, 1):
        (tmp_path / f"day_{day}").write_bytes((tiny_world_dir / "day_0").read_bytes())
    prepare(PrepareJob(split_by_day(find_days(tmp_path)), CRITEO, tmp_path / "out"))
    (reason,) = _audit(tmp_path / "out", max_overlap=0.5).reasons
    assert reason.startswith("100.00% of the test rows have the features of a training row")


def test_empty_slots_of_several_are_missing_and_no_damage(tmp_path: Path) -> None:
    schema = schema_of(LABEL, PRICE, SHOPS, CITY)
    lines = [f"{i % 2},{i}.5,{'' if i % 4 == 0 else i % 3},Oslo{i % 5}\n" for i in range(400)]
    (tmp_path / "a").write_text("".join(lines))
    segment = open_source(tmp_path / "a", schema).whole()
    middle = segment.source.line_start(segment.stop // 2)
    splits = Splits((replace(segment, stop=middle),), (), (replace(segment, start=middle),))
    prepare(PrepareJob(splits, schema, tmp_path / "out"))
    report = _audit(tmp_path / "out")
    assert report.reasons == ()
    assert [column.missing_frac for column in report.categories] == [0.0, 1.0, 0.0]  # the second shop is never there
    assert report.categories[0].num_distinct == 4  # missing has a row of its own, which is an id like any other


def _damaged(directory: Path, prepared: Path, name: str, row: int, column: int, value: float) -> AuditReport:
    """A copy of prepared rows with one value changed, and a manifest that knows it so."""
    shutil.copytree(prepared, directory)
    array = np.load(directory / f"{name}.npy", mmap_mode="r+")
    array[row, column] = value
    array.flush()
    content = (directory / f"{name}.npy").read_bytes()
    tell(directory, lambda where, manifest: told_of(where, manifest, f"{name}.npy", content))
    return _audit(directory)


@pytest.mark.parametrize(
    ("name", "column", "value", "finding"),
    [
        ("day_1_sparse", 3, 10**6, "cat_3: ids outside its table of {size} rows (1, the first is 1000000 in row 18 of"),
        ("day_2_sparse", 0, -1, "cat_0: ids outside its table of {size} rows (1, the first is -1 in row 18 of"),
        ("day_0_dense", 2, np.nan, "int_2: numbers that are not finite (1, the first is nan in row 18 of"),
        ("day_0_dense", 2, -np.inf, "int_2: numbers that are not finite (1, the first is -inf in row 18 of"),
        ("day_0_labels", 0, 7, "label: values other than 0 and 1 (1, the first is 7.0 in row 18 of"),
    ],
)
def test_damage_is_a_reason_and_named(
    prepared_dir: Prepare, tmp_path: Path, name: str, column: int, value: float, finding: str
) -> None:
    report = _damaged(tmp_path / "copy", prepared_dir("npy"), name, 17, column, value)
    assert report.prepared is not None
    size = report.prepared.table_rows[column]
    day = name.rpartition("_")[0]
    expected = f"{finding.format(size=f'{size:,}')} {tmp_path / 'copy' / day}); prepare the data anew"
    assert report.reasons[0] == expected
    assert report.reasons[: len(report.prepared.damage)] == report.prepared.damage


def test_other_clicks_than_the_manifest_counts_are_a_reason(prepared_dir: Prepare, tmp_path: Path) -> None:
    labels = np.load(prepared_dir("npy") / "day_2_labels.npy")
    row = int(np.flatnonzero(labels[:500, 0] == 0)[0])
    clicks = int(labels[:500].sum())
    report = _damaged(tmp_path / "copy", prepared_dir("npy"), "day_2_labels", row, 0, 1)
    assert report.reasons == (
        f"validation rows have {clicks + 1:,} clicks, and manifest.json says {clicks:,}; prepare the data anew",
    )
