"""A header is checked by name, left behind in every file, and never taken for a row."""

from pathlib import Path

import pytest

from recmill.data.logs.header import open_source
from recmill.errors import DataError
from tests.data.lines import COUNT, LABEL, PRICE, schema_of, text_reader

SHOP = schema_of(LABEL, PRICE, COUNT).with_({"header": True})


def _write(tmp_path: Path, text: bytes) -> Path:
    path = tmp_path / "shop.csv"
    path.write_bytes(text)
    return path


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("num_rows", [0, 1, 5])
def test_rows_begin_behind_the_header(tmp_path: Path, mark: bytes, num_rows: int) -> None:
    rows = b"".join(b"1,0.5,%d\n" % i for i in range(num_rows))
    source = open_source(_write(tmp_path, mark + b"clicked,price,count\n" + rows), SHOP)
    assert text_reader(SHOP).read([source.whole()]).columns.num_rows == num_rows
    assert source.buffer[source.rows_start :].tobytes() == rows


@pytest.mark.parametrize("text", [b"", b"clicked,price,count"], ids=["no byte", "no newline"])
def test_a_file_may_hold_no_row(tmp_path: Path, text: bytes) -> None:
    assert open_source(_write(tmp_path, text), SHOP).whole().num_bytes == 0


def test_without_a_header_the_first_line_is_a_row(tmp_path: Path) -> None:
    assert open_source(_write(tmp_path, b"1,2,3\n"), schema_of(LABEL, PRICE, COUNT)).rows_start == 0


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"clicked,prize,count", "the header calls column 2 'prize', schema small calls it 'price'; rename it"),
        (b"clicked,price", "in the header, the line has 2 fields, schema small expects 3"),
        (b"1,0.5,7", "the header calls column 1 '1', schema small calls it 'clicked'"),
    ],
)
def test_another_header_is_refused_by_file_and_column(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = _write(tmp_path, line + b"\n1,0.5,7\n")
    with pytest.raises(DataError) as caught:
        open_source(path, SHOP)
    assert str(caught.value).startswith(f"{path}:1: {complaint}")


def test_names_may_be_quoted(tmp_path: Path) -> None:
    quoted = SHOP.with_({"quoted": True})
    assert open_source(_write(tmp_path, b'"clicked",price,"count"\n1,2,3\n'), quoted).rows_start == 24
