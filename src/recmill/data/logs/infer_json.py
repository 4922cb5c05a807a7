"""A first schema from the first lines of JSON, whose values have types of their own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recmill.data.logs.infer_parquet import infer_typed
from recmill.data.logs.json_line import Broken, Whole, parse_line, type_of
from recmill.data.logs.raw_format import NOTHING_ASKED, AskedColumns, Draft
from recmill.data.logs.text_file import read_head
from recmill.data.text.reference import BadRow
from recmill.errors import DataError
from recmill.settings.data import BadRowPolicy

_SAMPLE_BYTES = 4 << 20
_SAMPLE_ROWS = 20_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def infer_json(paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
    """A schema for lines of objects like the first ones of these files."""
    from recmill.data.logs.parquet_rows import CellType, Sample  # pyarrow is heavy

    rows = sample_rows(paths)
    if not rows:
        raise DataError(f"{paths[0]} has no line to infer a schema from; give files with some")
    samples = dict[str, Sample]()
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(key) for row in rows]
        read_as, is_list = _type_of_all(values)
        told = "a mixture of types" if read_as is None else read_as
        samples[key] = Sample(told, CellType(read_as, is_list), [_number(value) for value in values])
    return infer_typed(samples, len(rows), name=name, file_format="jsonl", asked=asked)


def begins_with_object(path: Path) -> bool:
    """Whether the first line of a file is a JSON object, whatever the file is called."""
    line = read_head(path, _SAMPLE_BYTES).removeprefix(_BYTE_ORDER_MARK).partition(b"\n")[0]
    return line.startswith(b"{") and not isinstance(parse_line(line), BadRow)


def sample_rows(
    paths: Sequence[Path], max_bytes: int = _SAMPLE_BYTES, *, bad_rows: BadRowPolicy = "fail"
) -> list[dict[str, Any]]:
    """The objects of the first lines of the files; what is no object is named, or ignored."""
    rows, room = list[dict[str, Any]](), max_bytes
    for path in paths:
        head = read_head(path, room) if room > 0 and len(rows) < _SAMPLE_ROWS else b""
        room -= len(head)
        lines = head.removeprefix(_BYTE_ORDER_MARK).split(b"\n")
        for number, line in enumerate(lines[: _SAMPLE_ROWS - len(rows)], start=1):
            if line.strip():
                found = parse_line(line)
                if not isinstance(found, BadRow):
                    rows.append(found)
                elif bad_rows == "fail":
                    raise DataError(f"{path}:{number}: {found.describe()}")
    return rows


def _type_of_all(values: Sequence[Any]) -> tuple[str | None, bool]:
    """What all values of a column are, None if there is no one thing; and whether they are lists."""
    present = [value for value in values if value is not None]
    is_list = any(isinstance(value, list) for value in present)
    if not is_list:
        return _type_of_items(present), False
    if not all(isinstance(value, list) for value in present):
        return None, False
    read_as = _type_of_items([item for value in present for item in value if item is not None])
    return None if read_as == "float" else read_as, True


def _type_of_items(items: Sequence[Any]) -> str | None:
    found = {type_of(item) for item in items}
    if found == {"int", "float"}:
        return "float"
    only = found.pop() if len(found) == 1 else None if found else "string"
    return only if only in ("int", "float", "string") else None


def _number(value: Any) -> Any:
    """A value as Python has it."""
    if isinstance(value, list):
        return [_number(item) for item in value]
    if isinstance(value, Whole):
        return int(value) if len(value) <= 20 else float(value)
    return float(value) if isinstance(value, Broken) else value
