"""Titles of items, from a file such as MovieLens' movies.dat."""

import csv
from pathlib import Path

from recmill.errors import DataError

_SEPARATORS = ("::", "|", "\t")  # of movies.dat, u.item and tables; otherwise commas, with quotes
_TITLE = "title"


def read_titles(path: Path) -> dict[str, str]:
    """The title of each item: the first column names the item, and the column title, or the second one, the title.

    Columns are separated by ::, | or tabs, or the file is a CSV. It is UTF-8 or, as MovieLens' files are, Latin-1.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"--titles {path} cannot be read: {error.strerror or error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    try:
        rows = _split([line.removesuffix("\r") for line in text.split("\n")])
    except csv.Error as error:
        raise DataError(f"--titles {path} is neither a CSV nor a table of text: {error}") from None
    names = [name.strip().lower() for name in rows[0]] if rows else []
    column = names.index(_TITLE) if _TITLE in names[1:] else 1
    for number, row in enumerate(rows, start=1):
        if row and len(row) <= column:
            raise DataError(
                f"{path}:{number} has {len(row)} columns; give a file with the item in the first column and its title "
                "in the second, separated by ::, |, a tab or a comma"
            )
    return {row[0].strip(): row[column].strip() for row in rows[_TITLE in names :] if row}


def _split(lines: list[str]) -> list[list[str]]:
    separator = next((each for each in _SEPARATORS if lines and each in lines[0]), None)
    if separator is None:
        return list(csv.reader(lines))
    return [line.split(separator) if line else [] for line in lines]
