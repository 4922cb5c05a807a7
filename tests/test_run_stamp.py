import json
from pathlib import Path

import pytest

from recmill.errors import RunError
from recmill.files import write_manifest
from recmill.run_stamp import (
    facts_of_data,
    new_run_id,
    read_results,
    read_run_id,
    read_run_settings,
    refuse_foreign,
    write_results,
    write_run_settings,
)

SETTINGS = 'seed = 1\n\n[data]\ndir = "x"\n'
RESULTS = {"step": 3, "rows": 9, "best": None, "validation": {}, "test": {"auroc": 0.5}}


def test_settings_come_back_with_the_id_of_their_run(tmp_path: Path) -> None:
    run_id = new_run_id(SETTINGS, "")
    write_run_settings(tmp_path, SETTINGS, run_id)
    found = read_run_settings(tmp_path)
    assert (found.run_id, found.tree) == (run_id, {"seed": 1, "data": {"dir": "x"}})
    assert read_run_id(tmp_path) == run_id
    assert read_run_id(tmp_path / "nowhere") == ""


def test_every_flipped_bit_of_settings_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    write_run_settings(tmp_path, SETTINGS, new_run_id(SETTINGS, ""))
    path = tmp_path / "config.toml"
    content, tree = path.read_bytes(), read_run_settings(tmp_path).tree
    for place in range(len(content)):
        for bit in range(8):
            altered = bytearray(content)
            altered[place] ^= 1 << bit
            path.write_bytes(altered)
            assert read_or_complain(tmp_path) in (tree, "config.toml"), (place, bit)


def read_or_complain(run_dir: Path) -> object:
    try:
        return read_run_settings(run_dir).tree
    except RunError as error:
        return "config.toml" if str(error).startswith(str(run_dir / "config.toml")) else str(error)


def test_settings_of_older_runs_and_edited_ones_have_no_id(tmp_path: Path) -> None:
    write_run_settings(tmp_path, SETTINGS, "")
    assert (tmp_path / "config.toml").read_text() == SETTINGS
    assert read_run_settings(tmp_path).run_id == ""
    write_run_settings(tmp_path, SETTINGS, new_run_id(SETTINGS, ""))
    path = tmp_path / "config.toml"
    path.write_text(path.read_text().replace("seed = 1", "seed = 2"))
    with pytest.raises(RunError, match=r"config\.toml is not as recmill wrote it.* remove its first line"):
        read_run_settings(tmp_path)
    path.write_text(path.read_text().partition("\n")[2])
    assert read_run_settings(tmp_path).tree["seed"] == 2


def test_runs_on_other_data_or_settings_have_other_ids(tmp_path: Path) -> None:
    (tmp_path / "day_0").write_text("abc")
    ids = [new_run_id(SETTINGS, str(tmp_path)), new_run_id(SETTINGS + "\n", str(tmp_path))]
    assert new_run_id(SETTINGS, str(tmp_path)) == ids[0]
    (tmp_path / "day_0").write_text("abcd")
    ids += [new_run_id(SETTINGS, str(tmp_path)), new_run_id(SETTINGS, str(tmp_path / "nowhere"))]
    assert len(set(ids)) == 4


def test_what_is_of_another_run_is_rejected() -> None:
    for content, run_id in (({"run": "aa"}, "aa"), ({}, "aa"), ({"run": "aa"}, "")):
        refuse_foreign(Path("x"), content, run_id)
    with pytest.raises(RunError, match="x is of another run"):
        refuse_foreign(Path("x"), {"run": "aa"}, "bb")


def test_results_are_sealed_and_of_their_run(tmp_path: Path) -> None:
    write_run_settings(tmp_path, SETTINGS, new_run_id(SETTINGS, ""))
    written = write_results(tmp_path, RESULTS)
    assert read_results(tmp_path) == written == json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text((tmp_path / "results.json").read_text().replace("0.5", "0.6"))
    with pytest.raises(RunError, match=r"results\.json is damaged: it is not what its own checksum says"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))  # as older versions wrote them
    assert read_results(tmp_path) == RESULTS
    write_results(tmp_path, RESULTS)
    write_run_settings(tmp_path, SETTINGS, new_run_id("", ""))
    with pytest.raises(RunError, match=r"results\.json is of another run"):
        read_results(tmp_path)


def test_data_is_described_by_checksums_or_samples_file_by_file(tmp_path: Path) -> None:
    logs, prepared = tmp_path / "logs", tmp_path / "prepared"
    for directory in (logs, prepared):
        directory.mkdir()
        (directory / "day_0").write_bytes(b"0\n" * 600)
    write_manifest(prepared)
    facts = facts_of_data("data.dir", logs)
    assert facts["data.dir/day_0"].startswith("1,200 bytes with digest ")
    assert facts_of_data("data.dir", logs / "day_0") == facts
    (logs / "day_0").write_bytes(b"1\n" * 600)
    assert facts_of_data("data.dir", logs) != facts
    before = facts_of_data("data.dir", prepared)
    assert before["data.dir/day_0"].startswith("1,200 bytes with digest ")
    (prepared / "manifest.json").unlink()
    (prepared / "day_0").write_bytes(b"1\n" * 600)
    write_manifest(prepared)
    assert facts_of_data("data.dir", prepared) != before, "of the same size, and other rows"
    for number in range(1001):
        (logs / f"part_{number}").touch()
    assert list(facts_of_data("data.dir", logs)) == ["data.dir"]
    assert facts_of_data("data.dir", tmp_path / "nowhere") == {}
