import json
from pathlib import Path

import pytest

from recmill.errors import RunError
from recmill.observe.record import Recorder, read_records
from tests.observe.scalars import read_scalars


def test_a_record_is_a_line_of_json_and_a_point_on_each_curve(tmp_path: Path) -> None:
    with Recorder(tmp_path, at_step=0) as recorder:
        recorder.write("train", 5, loss=0.5, epoch=0)
        recorder.write("evaluate", 5, split="validation", auroc=0.75, calibration=None)
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (first["kind"], first["step"], first["loss"]) == ("train", 5, 0.5)
    assert (second["split"], second["auroc"], second["calibration"]) == ("validation", 0.75, None)
    scalars = read_scalars(tmp_path)
    assert scalars == {"train/loss": [(5, 0.5)], "train/epoch": [(5, 0.0)], "validation/auroc": [(5, 0.75)]}


def test_a_recorder_opened_at_a_step_forgets_what_came_behind_it(tmp_path: Path) -> None:
    with Recorder(tmp_path, at_step=0) as recorder:
        for step in (10, 20, 30):
            recorder.write("train", step, loss=float(step))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')  # torn by a kill
    with Recorder(tmp_path, at_step=20) as recorder:
        recorder.write("train", 25, loss=2.5)
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [10, 20, 25]


def test_infinities_are_not_json(tmp_path: Path) -> None:
    with Recorder(tmp_path, at_step=0) as recorder, pytest.raises(ValueError, match="JSON"):
        recorder.write("train", 1, loss=float("inf"))


def test_a_damaged_line_is_named_by_its_number_and_a_torn_last_one_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = '{"kind": "train", "step": 1, "time": 0.5, "loss": 0.25}\n'
    for torn in ('{"kind": "tr', "\0\0\n", good.rstrip()):
        path.write_text(good + torn)
        assert [record["step"] for record in read_records(path)] == [1]
    for damaged in ("\0", '{"kind": "train"}', '{"kind": "train", "step": -1, "time": 0}', "[]"):
        path.write_text(f"{good}{damaged}\n{good}")
        with pytest.raises(RunError, match=r"metrics\.jsonl, line 2, is damaged"):
            read_records(path)
        with pytest.raises(RunError, match="line 2"):
            Recorder(tmp_path, at_step=1)


def test_a_record_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    for _ in range(2):
        with Recorder(tmp_path, at_step=5) as recorder:
            recorder.write("train", 5, loss=0.5)
            recorder.write("evaluate", 5, split="test", auroc=0.75)
    assert [record["kind"] for record in read_records(tmp_path / "metrics.jsonl")] == ["train", "evaluate"]
    assert read_scalars(tmp_path) == {"train/loss": [(5, 0.5)], "test/auroc": [(5, 0.75)]}
