"""An audit says which values lists lose, which files are empty, and which labels bad lines have."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recmill.data.audit.audit import AuditInput, audit_files
from recmill.data.audit.report import AuditReport, Limits
from recmill.settings.columns import Column, Schema

LABEL = Column(name="click", role="label", kind="int")
PRICE = Column(name="price", role="dense", kind="float")
SKIP = Limits(bad_rows="skip", max_bad_frac=1.0)


def _text_schema(*columns: Column) -> Schema:
    return Schema(name="own", separator=",", columns=columns)


def _audit(path: Path, text: str, schema: Schema, limits: Limits = SKIP) -> AuditReport:
    path.write_text(text)
    return audit_files(AuditInput((path,), (), schema), limits)


def _tags(max_values: int, **more: str) -> Column:
    return Column(name="tags", role="category", kind="int", rows=50, max_values=max_values, **more)


def _lengths() -> list[int]:
    return [1] * 900 + [3] * 85 + [9] * 15


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_that_lose_values_are_counted_and_the_length_that_keeps_most_is_named(tmp_path: Path, ending: str) -> None:
    path, lists = tmp_path / f"log.{ending}", [list(range(length)) for length in _lengths()]
    labels = [row % 2 for row in range(len(lists))]
    if ending == "csv":
        schema = _text_schema(LABEL, _tags(2, inner_separator="|"))
        path.write_text("".join(f"{c},{'|'.join(map(str, each))}\n" for c, each in zip(labels, lists, strict=True)))
    elif ending == "jsonl":
        schema = Schema(name="own", format="jsonl", columns=(LABEL, _tags(2)))
        rows = [{"click": c, "tags": each} for c, each in zip(labels, lists, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        schema = Schema(name="own", format="parquet", columns=(LABEL, _tags(2)))
        pq.write_table(pa.table({"click": labels, "tags": lists}), path, row_group_size=300)
    report = audit_files(AuditInput((path,), (), schema), SKIP)
    (found,) = report.lists
    assert (found.rows_cut, found.frac_cut, found.max_values_for_99) == (100, 0.1, 9)
    assert any("tags: 100 training rows (10.00%) have more than max_values = 2 values" in note for note in report.notes)
    assert report.as_dict()["lists"][0]["rows_cut"] == 100


def test_lists_that_lose_nothing_are_no_finding(tmp_path: Path) -> None:
    report = _audit(tmp_path / "log", "0,1|2\n1,3\n" * 50, _text_schema(LABEL, _tags(2, inner_separator="|")))
    assert not any("max_values" in note for note in report.notes)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("0,1.5\n1,2\n" * 20)
    (tmp_path / "b").write_text("")
    report = audit_files(AuditInput((tmp_path / "a", tmp_path / "b"), (), _text_schema(LABEL, PRICE)), SKIP)
    assert report.empty_files == (str(tmp_path / "b"),)
    assert f"{tmp_path / 'b'} is empty: it has no rows" in report.notes


def test_bad_lines_of_one_label_forbid_training_that_ignores_them(tmp_path: Path) -> None:
    good, bad = "0,1.5\n0,2\n0,3\n0,4\n1,2\n" * 100, "1,none\n" * 40
    report = _audit(tmp_path / "log", good + bad, _text_schema(LABEL, PRICE))
    assert (report.bad.count, report.bad.num_labels, report.bad.num_clicks) == (40, 40, 40)
    assert any(reason.startswith("100.0% of the 40 bad lines whose label can be read") for reason in report.reasons)
    stops = _audit(tmp_path / "log", good + bad, _text_schema(LABEL, PRICE), Limits())
    assert any("do not ignore them with --bad-rows skip" in note for note in stops.notes)
    alike = "0,x\n0,x\n0,x\n0,x\n1,x\n" * 8
    assert _audit(tmp_path / "log", good + alike, _text_schema(LABEL, PRICE)).reasons == ()


def test_a_class_that_is_skipped_as_a_whole_is_an_error(tmp_path: Path) -> None:
    report = _audit(tmp_path / "log", "0,1.5\n" * 500 + "1,none\n" * 3 + "broken\n", _text_schema(LABEL, PRICE))
    assert (report.bad.count, report.bad.num_labels) == (4, 3)
    (reason,) = (reason for reason in report.reasons if "nothing to learn" in reason)
    assert reason.endswith("3 bad lines have the other label: fix them or the schema")
