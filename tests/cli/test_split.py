"""`recmill split` as a person meets it."""

from pathlib import Path

import pytest

from recmill.cli.main import main


def _split(log: Path, parts: int, rows: int, out_dir: Path) -> int:
    return main(["split", str(log), "--parts", str(parts), "--rows", str(rows), "--out", str(out_dir)])


def test_a_log_becomes_days_and_one_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out_dir = tmp_path / "log.txt", tmp_path / "days"
    log.write_text("".join(f"row {i}\n" for i in range(1007)))
    assert _split(log, 4, 250, out_dir) == 0
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    num_bytes = sum(path.stat().st_size for path in out_dir.iterdir())
    assert f"{out_dir}: 1,000 rows in 4 parts of 250, {num_bytes:,} bytes, " in told
    assert " rows/s; 7 lines at the end of " in told
    assert sorted(path.name for path in out_dir.iterdir()) == ["day_0", "day_1", "day_2", "day_3"]


def test_a_short_log_is_a_user_error_that_says_how_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.txt"
    log.write_text("a\nb\nc")
    assert _split(log, 2, 2, tmp_path / "days") == 2
    told = capsys.readouterr().err
    assert "has 3 lines; 2 parts of 2 rows need 4: lower --parts or --rows (at most 1 rows in 2 parts)" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "days").exists()


def test_with_a_schema_no_row_is_cut_inside_quotes_and_the_header_is_repeated(tmp_path: Path) -> None:
    log, out_dir, schema = tmp_path / "log.csv", tmp_path / "days", tmp_path / "shop.toml"
    schema.write_text(
        """separator = ","
header = true
quoted = true
columns = [{ name = "clicked", role = "label", kind = "int" }, { name = "note", role = "ignored" }]
"""
    )
    header, rows = (
        b"\xef\xbb\xbfclicked,note\r\n",
        [b'%d,"row %d\r\n\nof ""many"""\r\n' % (i % 2, i) for i in range(1007)],
    )
    log.write_bytes((header + b"".join(rows)).removesuffix(b"\r\n"))
    words = ["split", str(log), "--parts", "4", "--rows", "250", "--out", str(out_dir), "--schema", str(schema)]
    assert main(words) == 0
    for day in range(4):
        written = (out_dir / f"day_{day}").read_bytes()
        assert written == header[3:] + b"".join(rows[250 * day : 250 * (day + 1)])
    assert main([*words[:3], "19", "--rows", "53", *words[6:], "--overwrite"]) == 0
    assert (out_dir / "day_18").read_bytes().endswith(rows[1006].removesuffix(b"\r\n") + b"\n")
