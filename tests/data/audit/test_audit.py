"""An audit finds what was planted, tells what numpy tells, and does not depend on threads or on how rows are cut."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest

from recmill.data.audit import audit as audit_module
from recmill.data.audit.audit import Audit, AuditInput, audit_files
from recmill.data.audit.report import AuditReport, Limits
from recmill.data.logs import raw as raw_module
from recmill.data.text.fields import MISSING_CATEGORY, RawColumns
from recmill.errors import ConfigError, DataError
from recmill.settings.columns import Column, Schema
from recmill.settings.criteo import CRITEO, CRITEO_UNLABELLED
from tests.data.lines import CITY, COUNT, LABEL, MIXED, PRICE, SHOP, accepted_rows, plain_line, raw_columns, schema_of

SMALL = schema_of(LABEL, PRICE, COUNT, CITY, SHOP)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def _random_rows(num_rows: int, seed: int = 0) -> RawColumns:
    """Rows of the small schema: no two alike, nothing told of the label."""
    rng = np.random.default_rng(seed)
    numbers = np.stack([rng.normal(size=num_rows), rng.integers(0, 50, num_rows).astype(float)], axis=1)
    numbers[rng.random(num_rows) < 0.1, 1] = np.nan
    values = rng.zipf(1.5, (num_rows, 2)).astype(np.uint64) % np.uint64(1 << 40)
    values[rng.random((num_rows, 2)) < 0.1] = MISSING_CATEGORY
    return RawColumns((rng.random(num_rows) < 0.3).astype(np.float32), numbers, values)


def _rows_of(raw: RawColumns, chosen: slice) -> RawColumns:
    return RawColumns(raw.labels[chosen], raw.numbers[chosen], raw.values[chosen])


def _joined(*parts: RawColumns) -> RawColumns:
    labels, numbers, values = ([part[i] for part in parts] for i in range(3))
    return RawColumns(np.concatenate(labels), np.concatenate(numbers), np.concatenate(values))


def _audit(
    pool: ThreadPoolExecutor, train: RawColumns, test: RawColumns | None = None, schema: Schema = SMALL
) -> AuditReport:
    audit = Audit(schema, pool)
    audit.take(train, "train")
    if test is not None:
        audit.take(test, "test")
    return audit.report(Limits())


def _files(directory: Path, texts: dict[str, bytes]) -> dict[str, Path]:
    for name, text in texts.items():
        (directory / name).write_bytes(text)
    return {name: directory / name for name in texts}


def _csv(num_rows: int, seed: int, schema: Schema = MIXED) -> list[bytes]:
    random = Random(seed)
    return [plain_line(random, schema) + b"\n" for _ in range(num_rows)]


def test_a_synthetic_log_is_told_as_numpy_and_counter_tell_it(tiny_world_dir: Path) -> None:
    days = [tiny_world_dir / f"day_{day}" for day in range(3)]
    report = audit_files(AuditInput(tuple(days[:2]), (days[2],), CRITEO), Limits(coverage_frac=0.9))
    train = raw_columns(CRITEO, accepted_rows(b"".join(day.read_bytes() for day in days[:2]), CRITEO))
    assert report.reasons == ()
    assert (report.train.num_rows, report.test.num_rows, report.bad.count) == (2000, 1000, 0)
    assert report.train.click_rate == pytest.approx(train.labels.mean())
    for profile, numbers in zip(report.dense, train.numbers.T, strict=True):
        present = numbers[~np.isnan(numbers)]
        assert profile.missing_frac == pytest.approx(np.isnan(numbers).mean())
        assert (profile.minimum, profile.maximum) == (present.min(), present.max())
        assert profile.quantiles is not None
        assert profile.quantiles["0.5"] == np.quantile(present, 0.5, method="inverted_cdf")
    for column, values in zip(report.categories, train.values.T, strict=True):
        counts = Counter(values[values != MISSING_CATEGORY].tolist())
        assert column.num_distinct == len(counts)
        assert column.top_values[0].rows == counts.most_common(1)[0][1]
        rows_covered = sum(rows for _, rows in counts.most_common(column.covering_values))
        assert rows_covered >= 0.9 * counts.total()
        assert rows_covered - counts.most_common()[column.covering_values - 1][1] < 0.9 * counts.total()
    assert all(column.auroc is not None and column.auroc < 0.8 for column in report.columns)


def test_the_result_depends_neither_on_threads_nor_on_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _csv(600, 1)
    lines[50], lines[333], lines[555] = b"\n", lines[2], b"1,2\n"
    files = _files(tmp_path, {"a": b"".join(lines[:400]), "b": b"".join(lines[400:]), "c": b"".join(_csv(300, 2))})
    reports = []
    for threads, chunk_bytes in ((1, 8 << 20), (2, 3000), (3, 100), (4, 20_000)):
        monkeypatch.setattr(raw_module, "CHUNK_BYTES", chunk_bytes)
        found = audit_files(AuditInput((files["a"], files["b"]), (files["c"],), MIXED, threads=threads), Limits())
        reports.append(json.dumps(found.as_dict()))
    assert len(set(reports)) == 1
    assert json.loads(reports[0])["train"]["num_rows"] == 598


def test_raw_columns_from_anywhere_are_audited_alike_however_they_are_cut(pool: ThreadPoolExecutor) -> None:
    raw = _random_rows(5000)
    expected = _audit(pool, raw)
    audit = Audit(SMALL, pool)
    for at in range(0, 5000, 611):
        audit.take(_rows_of(raw, slice(at, at + 611)), "train")
    assert audit.report(Limits()) == expected
    columnwise = RawColumns(raw.labels, np.asfortranarray(raw.numbers), np.asfortranarray(raw.values))
    assert _audit(pool, columnwise) == expected
    assert (expected.reasons, expected.duplicate_columns, expected.constant_columns) == ((), (), ())


def test_bad_lines_are_named_by_file_and_line_the_first_ten_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_module, "CHUNK_BYTES", 2000)
    lines = _csv(400, 3)
    for at in range(19, 400, 20):
        lines[at] = b"2," + lines[at].partition(b",")[2]
    files = _files(tmp_path, {"a": b"".join(lines), "b": b"oops"})
    report = audit_files(AuditInput((files["a"],), (files["b"],), MIXED), Limits())
    assert report.bad.count == 21
    assert [line.partition(": ")[0] for line in report.bad.first] == [f"{files['a']}:{20 * i}" for i in range(1, 11)]
    assert report.bad.first[0].endswith(
        "column clicked holds '2': a label is 0 or 1; of others the schema says which are positive (positive = ...)"
    )
    assert report.train.num_rows == 380
    assert "21 bad lines" in report.notes
    assert any(reason.startswith("21 bad lines, and training stops at the first") for reason in report.reasons)
    for share, is_wrong in ((0.01, True), (0.06, False)):
        limits = Limits(bad_rows="skip", max_bad_frac=share)
        reasons = audit_files(AuditInput((files["a"],), (files["b"],), MIXED), limits).reasons
        assert any(reason.startswith("21 of 401 lines are bad (5.24%)") for reason in reasons) == is_wrong


def test_repeated_rows_are_counted(pool: ThreadPoolExecutor) -> None:
    raw = _random_rows(1000)
    repeated = _joined(raw, _rows_of(raw, slice(40)), _rows_of(raw, slice(40)))
    repeated.labels[1000:1010] = 1 - repeated.labels[1000:1010]
    test = _joined(_rows_of(raw, slice(200, 230)), _random_rows(170, 5))
    test.labels[:12] = 1 - test.labels[:12]
    report = _audit(pool, repeated, test)
    features = [
        tuple(np.nan_to_num(n, nan=-7)) + tuple(v) for n, v in zip(repeated.numbers, repeated.values, strict=True)
    ]
    labelled = Counter(zip(features, repeated.labels.tolist(), strict=True))
    assert report.rows.method == "exact"
    assert report.rows.duplicate_rows == sum(labelled.values()) - len(labelled) == 70
    assert report.rows.conflicting_rows == 30
    assert (report.rows.overlap_rows, report.rows.overlap_rows_with_label) == (30, 18)
    assert report.rows.overlap_frac == 30 / 200
    assert "15.00% of the test rows have the features of a training row, more than 1.00%" in report.reasons[0]


def test_many_repeated_rows_are_estimated(pool: ThreadPoolExecutor) -> None:
    raw = _random_rows(20_000)
    audit = Audit(SMALL, pool, max_row_hashes=1 << 11)
    audit.take(raw, "train")
    audit.take(_rows_of(raw, slice(0, 5000)), "train")
    audit.take(_rows_of(raw, slice(0, 8000)), "test")
    audit.take(_random_rows(8000, 6), "test")
    rows = audit.report(Limits()).rows
    assert rows.method == "sample"
    assert 0 < rows.error_frac < 0.05
    assert rows.duplicate_rows == pytest.approx(5000, rel=0.15)
    assert rows.overlap_frac == pytest.approx(0.5, abs=4 * rows.error_frac)
    assert rows.overlap_rows == pytest.approx(8000, rel=0.15)


def test_constant_and_equal_columns_are_named(pool: ThreadPoolExecutor) -> None:
    schema = schema_of(
        LABEL,
        *(Column(name=f"n{i}", role="dense", kind="float") for i in range(4)),
        *(Column(name=f"c{i}", role="category", kind="int") for i in range(5)),
    )
    small = _random_rows(500)
    numbers = np.stack([small.numbers[:, 0], small.numbers[:, 0], np.full(500, 3.0), small.numbers[:, 0]], axis=1)
    numbers[499, 3] += 1
    city, swapped = small.values[:, 0], small.values[:, 0].copy()
    swapped[[3, 4]] = 1, 2  # the same values in another order are another column
    other = swapped.copy()
    other[[3, 4]] = 2, 1
    values = np.stack([city, np.full(500, MISSING_CATEGORY), swapped, city, other], axis=1)
    report = _audit(pool, RawColumns(small.labels, numbers, values), schema=schema)
    assert report.constant_columns == ("n2", "c1")
    assert report.duplicate_columns == (("n0", "n1"), ("c0", "c3"))
    assert "constant in training: n2, c1" in report.notes
    assert "equal in every training row: c0, c3" in report.notes
    assert report.reasons == ()


def test_leaks_are_reasons(pool: ThreadPoolExecutor) -> None:
    raw = _random_rows(2000)
    raw.numbers[:, 1] = raw.labels
    raw.values[:, 0] = np.where(raw.labels == 1, raw.values[:, 0] * 2 + 1, raw.values[:, 0] * 2)
    raw.values[:, 1] = np.arange(2000)
    report = _audit(pool, raw)
    assert set(report.leak_suspects) == {"count", "city"}
    assert report.leak_suspects["count"] == 1.0
    assert report.reasons[0].startswith("count alone predicts the label with AUROC 1.0000, above 0.95")


def test_reasons_not_to_train(pool: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = _random_rows(100)
    for label in (0, 1):
        constant = raw._replace(labels=np.full(100, label, np.float32))
        assert _audit(pool, constant).reasons == (
            f"all 100 training rows have the label {label}; there is nothing to learn",
        )
    assert _audit(pool, _rows_of(raw, slice(0, 0))).reasons == ("there are no training rows",)
    files = _files(tmp_path, {"empty": b"", "bad": b"x\n" * 30, "unlabelled": b"\t" * 38 + b"\n"})
    (all_bad,) = audit_files(AuditInput((files["bad"],), (), CRITEO), Limits()).reasons
    assert all_bad == "all 30 lines are bad; is criteo the right schema?"
    assert audit_files(AuditInput((files["empty"],), (), CRITEO), Limits()).reasons == ("there are no training rows",)
    monkeypatch.setattr(raw_module, "CHUNK_BYTES", 10)
    monkeypatch.setattr(audit_module, "GIVE_UP_LINES", 12)
    (first_bad,) = audit_files(AuditInput((files["bad"],), (), CRITEO), Limits()).reasons
    assert first_bad == "the first 15 lines are bad; is criteo the right schema?"
    (unlabelled,) = audit_files(AuditInput((files["unlabelled"],), (), CRITEO_UNLABELLED), Limits()).reasons
    assert unlabelled == "schema criteo-unlabelled has no label: its rows can be scored, not trained on"


def test_mistakes_in_the_question(tmp_path: Path) -> None:
    files = _files(tmp_path, {"a": b"", "b": b""})
    with pytest.raises(DataError, match="a is for training and for test; a split may share none"):
        AuditInput((files["a"], files["b"]), (files["a"],), CRITEO)
    with pytest.raises(ConfigError, match="--threads 0 is rejected: it is 1 or more"):
        AuditInput((files["a"],), (), CRITEO, threads=0)
    with pytest.raises(ConfigError, match=r"--coverage 1.5 is rejected: it is above 0 and at most 1"):
        Limits(coverage_frac=1.5)
    with pytest.raises(ConfigError, match=r"--max-overlap -1 is rejected: it is 0 to 1"):
        Limits(max_overlap_frac=-1)
