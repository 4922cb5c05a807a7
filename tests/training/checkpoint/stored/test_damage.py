"""Damage of rows in files is named to the byte."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recmill.embeddings.store.layout import Arena, empty_arena
from recmill.embeddings.store.log import Records
from recmill.files import MANIFEST, finished_dir
from recmill.training.checkpoint.saved_state import open_state, verify
from recmill.training.checkpoint.stored.damage import verify_store
from recmill.training.checkpoint.stored.open_store import open_store
from recmill.training.checkpoint.stored.write_state import SegmentsWriter, finish_state, keep_files
from tests.laws.tiered_runs import checkpoint_of, flip_byte


def test_an_intact_state_is_intact(tiered_run: Path) -> None:
    found = verify_store(tiered_run)
    assert (found["intact"], found["damage"], found["segments"]) == (True, [], 2)
    assert found["blocks"] >= 2
    assert found["records"] > 500


@pytest.mark.parametrize(
    ("place", "told"), [(5000, "byte 4,096"), (100, "byte 0"), (-70, "or behind: the list of its rows")]
)
def test_a_flipped_byte_is_named_with_its_place(place: int, told: str, own_run: Path) -> None:
    file = checkpoint_of(own_run, 6) / "segment-0000000001.rows"
    flip_byte(file, place)
    found = verify_store(own_run / "checkpoints" / "step_0000000006")
    assert not found["intact"]
    assert any(str(file) in each and "manifest" in each for each in found["damage"])
    assert any(str(file) in each and told in each for each in found["damage"]), found["damage"]
    assert any(str(file) in each for each in verify(own_run)[checkpoint_of(own_run, 6)]), "checkpoint verify names it"
    assert verify_store(checkpoint_of(own_run, 3))["intact"], "the other one is not touched"


@pytest.mark.parametrize("name", [MANIFEST, "store.json"])
def test_a_changed_number_in_what_describes_the_rows_is_named(name: str, own_run: Path) -> None:
    path = checkpoint_of(own_run, 6) / name
    text = path.read_text()
    path.write_text(
        text.replace('"seed": 0', '"seed": 1') if name == "store.json" else text.replace('"step": 6', '"step": 5')
    )
    found = verify_store(checkpoint_of(own_run, 6))
    assert any(str(path) in each and "damaged" in each for each in found["damage"]), found["damage"]


HARMS: dict[str, Callable[[Path], object]] = {
    "is missing": lambda second: second.unlink(),
    "was not finished": lambda second: second.write_bytes(second.read_bytes()[:-20]),
    "its name or size": lambda second: second.write_bytes(second.with_name("segment-0000000000.rows").read_bytes()),
    "is not listed": lambda second: second.with_name("segment-0000000007.rows").write_bytes(b"torn"),
}


@pytest.mark.parametrize("told", HARMS)
def test_segments_that_are_not_what_they_were_are_named(told: str, own_run: Path) -> None:
    second = checkpoint_of(own_run, 6) / "segment-0000000001.rows"
    content = second.read_bytes()
    second.unlink()
    second.write_bytes(content)  # no hard link any more
    HARMS[told](second)
    found = verify_store(checkpoint_of(own_run, 6))
    assert any(told in each and ".rows" in each for each in found["damage"]), found["damage"]


def test_a_row_that_no_table_has_is_named(tiered_run: Path, tmp_path: Path) -> None:
    with open_store(tiered_run) as store, finished_dir(tmp_path / "state") as scratch:
        kept = keep_files(store.state, scratch)
        writer = SegmentsWriter(scratch, store.kind, 9)
        values = empty_arena(2, store.kind.layout)
        writer.append(Records(np.array([3, 1300]), np.array([6, 6]), Arena(values.weights * 0, values.state * 0)))
        writer.finish()
        finish_state(store.state, scratch, kept, writer.files)
    (damage,) = verify_store(tmp_path / "state")["damage"]
    assert (
        "segment-0000000009.rows is damaged at byte 4,104: it has row 1,300, and the tables have 1,300 rows" in damage
    )


def test_what_is_found_is_plain_data(tiered_run: Path) -> None:
    assert json.loads(json.dumps(verify_store(tiered_run)))["path"] == str(open_state(tiered_run).directory)
