import json
from pathlib import Path

import pytest

from recmill.observe.record import Recorder


def read_scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory / "tensorboard")).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


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
