"""The log against a plain dict: whatever is written, moved, finished and opened again, the newest record counts."""

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from recmill.embeddings.store.layout import RecordLayout, empty_arena
from recmill.embeddings.store.log import PLACE_SHIFT, SegmentLog
from recmill.embeddings.store.residency import NEVER, empty_residency, find_moved, outside
from recmill.embeddings.store.segment import read_footer
from recmill.embeddings.store.stored import take_segments
from recmill.errors import FailureError, RunError

LAYOUT, NUM_ROWS, KEY = RecordLayout(4, 1), 500, 99


class Model:
    """A log, where it says that rows lie, and what they are to be."""

    def __init__(self, directory: Path) -> None:
        self.log = SegmentLog(LAYOUT, num_rows=NUM_ROWS, store_key=KEY)
        self.log.write_into(directory)
        self.residency = empty_residency(NUM_ROWS, 1)
        self.expected: dict[int, NDArray[np.float32]] = {}
        self._rng = np.random.default_rng(0)

    def write(self, rows: NDArray[np.int64], step: int) -> None:
        arena, slots = empty_arena(len(rows), LAYOUT), self._rng.permutation(len(rows))
        arena.weights[:] = self._rng.standard_normal(arena.weights.shape)
        arena.state[:] = step
        self._let_go(rows)
        places = self.log.append(rows, np.full(len(rows), step), arena, slots)
        self.residency.where[rows] = outside(places)
        for row, slot in zip(rows.tolist(), slots, strict=True):
            self.expected[row] = np.concatenate([arena.weights[slot], arena.state[slot]])

    def _let_go(self, rows: NDArray[np.int64]) -> None:
        found = self.residency.where[rows]
        np.subtract.at(self.log.live, outside(found[found != NEVER]) >> PLACE_SHIFT, 1)

    def move(self, *, all_of_them: bool) -> None:
        while (todo := self.log.next_to_move(all_of_them=all_of_them)) is not None:
            records, places = todo
            moved, number = np.empty(len(places), np.int64), int(places[0]) >> PLACE_SHIFT
            args = (records.rows, records.steps, places, self.residency, self.log.live, number, moved)
            moved = moved[: find_moved(*args)]
            rows = records.rows[moved]
            self.residency.where[rows] = outside(self.log.append(rows, records.steps[moved], records.arena, moved))

    def check(self, log: SegmentLog | None = None) -> None:
        rows = np.array(sorted(self.expected), np.int64)
        rows = np.random.default_rng(1).permutation(rows)
        arena = empty_arena(len(rows), LAYOUT)
        (log or self.log).start_fetch(outside(self.residency.where[rows]), arena, np.arange(len(rows)))()
        found = np.concatenate([arena.weights, arena.state], axis=1)
        assert found.tobytes() == np.array([self.expected[row] for row in rows.tolist()]).tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_the_newest_record_of_a_row_counts(seed: int, tmp_path: Path) -> None:
    draw, model = random.Random(seed), Model(tmp_path / "store")
    rng = np.random.default_rng(seed)
    for step in range(60):
        model.write(rng.choice(NUM_ROWS, draw.choice([1, 30, 400]), replace=False), step)
        model.move(all_of_them=draw.random() < 0.1)
        living = len(model.expected)
        assert int(model.log.live.sum()) == living
        assert model.log.num_records <= 1.5 * living + 3 * model.log.segment_records, "what does not count is bounded"
        if draw.random() < 0.2:
            model.log.finished_files()
    model.check()
    model.move(all_of_them=True)
    model.check()
    files = model.log.finished_files()
    assert sum(file.num_records for file in files) == len(model.expected)
    again, where = SegmentLog(LAYOUT, num_rows=NUM_ROWS, store_key=KEY), np.full(NUM_ROWS, NEVER)
    take_segments(again, where, [file.path for file in files], {})
    assert where.tolist() == model.residency.where.tolist()
    assert again.live.sum() == len(model.expected)
    model.check(again)
    steps = {row: step for file in files for row, step in zip(*_footer(file.path), strict=True)}
    assert all(steps[row] == values[-1] for row, values in model.expected.items())
    again.close()
    model.log.close()
    assert not (tmp_path / "store").exists(), "nothing is left of a log that is closed"


def _footer(path: Path) -> tuple[list[int], list[int]]:
    footer = read_footer(path, LAYOUT, KEY)
    return footer.rows.tolist(), footer.steps.tolist()


def test_a_damaged_block_is_named_with_its_file_and_byte(tmp_path: Path) -> None:
    model = Model(tmp_path / "store")
    model.write(np.arange(NUM_ROWS), 1)
    path = model.log.finished_files()[0].path
    content = bytearray(path.read_bytes())
    content[4096 + 7] ^= 4
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"{path.name} is damaged: its checksum differs for the block at byte 4,096"):
        model.check()
    model.log.close()


@pytest.mark.parametrize("harm", ["tail", "footer", "shorter", "longer", "renamed", "other key", "other layout"])
def test_a_segment_that_is_not_what_it_says_is_rejected_by_name(harm: str, tmp_path: Path) -> None:
    model = Model(tmp_path / "store")
    model.write(np.arange(NUM_ROWS), 1)
    path = model.log.finished_files()[0].path
    content, layout, key = bytearray(path.read_bytes()), LAYOUT, KEY
    if harm == "tail":
        content[-10] ^= 1
    elif harm == "footer":
        content[-200] ^= 1
    elif harm == "shorter":
        content = content[:-1]
    elif harm == "longer":
        content += b"x"
    elif harm == "renamed":
        path = path.with_name("segment-0000000007.rows")
    elif harm == "other key":
        key = 1
    else:
        layout = RecordLayout(5, 0)
    path.write_bytes(content)
    with pytest.raises(RunError, match=path.name):
        read_footer(path, layout, key)
    model.log.close()


def test_a_full_disk_is_told_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(tmp_path / "store")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("recmill.embeddings.store.segment.write_at", fail)
    with pytest.raises(FailureError, match=r"No space left on device; make room, or give another store\.dir"):
        model.write(np.arange(NUM_ROWS), 1)
