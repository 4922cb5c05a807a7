"""A digest of some pages tells files of the same name and size from each other."""

import os
from pathlib import Path

import numpy as np
import pytest

from recmill.errors import DataError
from recmill.sampled import sampled_digest, size_of

SIZES = (0, 1, 4095, 1 << 20, (1 << 20) + 1, 5_000_001)


def _file(path: Path, num_bytes: int, seed: int = 0) -> Path:
    path.write_bytes(np.random.default_rng(seed).bytes(num_bytes))
    return path


@pytest.mark.parametrize("num_bytes", SIZES)
def test_it_is_of_the_content_and_not_of_the_name(num_bytes: int, tmp_path: Path) -> None:
    one, same, other = (_file(tmp_path / f"{name}", num_bytes, seed=name == "c") for name in "abc")
    assert sampled_digest(one) == sampled_digest(same)
    assert size_of(sampled_digest(one)) == num_bytes
    if num_bytes:
        assert sampled_digest(one) != sampled_digest(other)


@pytest.mark.parametrize("num_bytes", SIZES[1:])
def test_ends_and_small_files_are_looked_at_byte_by_byte(num_bytes: int, tmp_path: Path) -> None:
    path = _file(tmp_path / "rows", num_bytes)
    before, content = sampled_digest(path), path.read_bytes()
    for place in {0, num_bytes - 1, *((num_bytes // 2,) if num_bytes <= 1 << 20 else ())}:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert sampled_digest(path) != before


def test_large_files_cost_no_more_than_small_ones(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.touch()
    os.truncate(path, 1 << 40)  # a hole
    assert size_of(sampled_digest(path)) == 1 << 40


def test_nothing_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is a named pipe"):
        sampled_digest(tmp_path / "pipe")
