"""Titles of items from the files that people have."""

from pathlib import Path

import pytest

from recmill.errors import DataError
from recmill.serve.titles import read_titles

FILES = {
    "movies.dat": "1::Les Misérables (1995)::Drama\n7::Se7en: a film::Crime\n".encode("latin-1"),
    "u.item": "1|Les Misérables (1995)|01-Jan-1995||0\n7|Se7en: a film|||1\n".encode("latin-1"),
    "movies.csv": 'movieId,title,genres\r\n1,Les Misérables (1995),Drama\r\n7,"Se7en: a film",Crime\r\n'.encode(),
    "items.tsv": "\ufeffitem\tprice\tTitle\n1\t3\tLes Misérables (1995)\n\n7\t4\tSe7en: a film\n".encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_titles_are_read_from_any_usual_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert read_titles(tmp_path / name) == {"1": "Les Misérables (1995)", "7": "Se7en: a film"}


def test_a_file_that_has_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1,a\n2\n")
    with pytest.raises(DataError, match=r"x:2 has 1 columns; give a file with the item in the first column"):
        read_titles(tmp_path / "x")
    with pytest.raises(DataError, match=r"--titles .*y cannot be read: No such file"):
        read_titles(tmp_path / "y")
