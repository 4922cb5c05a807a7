import shutil
from pathlib import Path

import pytest

from recmill.errors import RunError
from recmill.files import MANIFEST
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.checkpoint import write_checkpoint, write_model
from recmill.training.checkpoint.saved_state import describe, list_run, open_state, verify
from recmill.training.click.assemble import assemble
from recmill.training.progress import Best, Progress
from tests.training.checkpoint.saved import save
from tests.training.checkpoint.states import train_steps


@pytest.fixture
def run_dir(tiny_config: TrainConfig, tmp_path: Path) -> Path:
    """Two checkpoints, the weights of a best step, and the last weights."""
    parts, run = assemble(tiny_config), tmp_path / "run"
    (run / "best").mkdir(parents=True)
    (run / "config.toml").write_text("seed = 0\n")
    progress = train_steps(parts, 1)
    write_checkpoint(run / "checkpoints" / "step_0000000001", parts, progress)
    write_model(run / "best" / "step_0000000001_auroc_0.60000", parts, progress)
    progress = train_steps(parts, 1, Progress(step=1, num_rows=100, position=progress.position, best=Best(0.6, 1)))
    write_checkpoint(run / "checkpoints" / "step_0000000002", parts, progress)
    write_model(run / "model", parts, progress)
    return run


def test_a_flipped_bit_anywhere_is_named_by_its_file(tiny_config: TrainConfig, tmp_path: Path) -> None:
    directory = tmp_path / "saved"
    save(tiny_config, directory)
    assert verify(directory) == {directory: []}
    names = sorted(path.name for path in directory.iterdir())
    assert len(names) == 8
    for name in names:
        content = (directory / name).read_bytes()
        for place in {0, len(content) // 2, len(content) - 1}:
            (directory / name).write_bytes(
                content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
            )
            complaints = verify(directory)[directory]
            assert complaints, f"{name}, byte {place}"
            assert complaints[0].startswith(str(directory / name)), f"{name}, byte {place}: {complaints}"
        (directory / name).write_bytes(content)
    assert verify(directory) == {directory: []}


def test_a_damaged_state_is_refused_by_name_by_those_who_do_not_hash(run_dir: Path) -> None:
    newest = run_dir / "checkpoints" / "step_0000000002"
    state = open_state(newest)
    for name in ("progress.json", "counters.json", "config.toml", "tables.safetensors", "optimizer.safetensors"):
        content = (newest / name).read_bytes()
        place = content.index(b"{") if b"{" in content else 0
        (newest / name).write_bytes(content[:place] + b"!" + content[place + 1 :])
        with pytest.raises(RunError, match=f"{name} is damaged"):
            describe(state, state.whats)
        if name == "progress.json":
            assert "progress.json is damaged" in (list_run(run_dir)[1].damage or "")
        (newest / name).write_bytes(content)
    assert describe(state, state.whats)["step"] == 2


def test_no_bit_of_a_manifest_can_be_flipped_unnoticed(tiny_config: TrainConfig, tmp_path: Path) -> None:
    write_model(tmp_path / "model", assemble(tiny_config), Progress())
    path = tmp_path / "model" / MANIFEST
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 7)]) + content[place + 1 :])
        assert any(MANIFEST in each for each in verify(tmp_path / "model")[tmp_path / "model"]), f"byte {place}"


def test_what_does_not_belong_to_a_state_is_named(tiny_config: TrainConfig, tmp_path: Path) -> None:
    directory = tmp_path / "saved"
    save(tiny_config, directory, 0)
    shutil.copy(directory / "tables.safetensors", directory / "tables.00001-of-00002.safetensors")
    (complaint,) = verify(directory)[directory]
    assert "tables.00001-of-00002.safetensors is not listed in manifest.json" in complaint


def test_a_list_tells_what_is_there_and_what_is_torn(run_dir: Path) -> None:
    listed = [each.as_dict() for each in list_run(run_dir)]
    assert [(each["kind"], each["step"], each["rows"]) for each in listed] == [
        ("checkpoint", 1, 100),
        ("checkpoint", 2, 200),
        ("best", 1, None),
        ("model", 2, None),
    ]
    assert [each["best"] for each in listed] == [None, {"score": 0.6, "step": 1}, None, None]
    assert all(each["intact"] and each["processes"] == 1 and each["bytes"] > 0 for each in listed)
    newest = run_dir / "checkpoints" / "step_0000000002"
    (newest / "dense.safetensors").write_bytes(b"torn")
    (run_dir / "model" / "manifest.json").unlink()
    listed = [each.as_dict() for each in list_run(run_dir)]
    assert [each["intact"] for each in listed] == [True, False, True, False]
    assert "dense.safetensors" in listed[1]["damage"]
    assert "manifest.json" in listed[3]["damage"]
    assert open_state(run_dir).step == 1, "the newest that is complete"
    verdicts = verify(run_dir)
    assert [bool(damage) for damage in verdicts.values()] == [False, True, False, True]


def test_a_description_has_shapes_and_norms(run_dir: Path) -> None:
    state = open_state(run_dir)
    facts = describe(state, state.whats)
    assert (facts["kind"], facts["step"], facts["progress"]["num_rows"]) == ("checkpoint", 2, 200)
    assert facts["settings"]["model.embedding_dim"] == 4
    weights = {each["name"]: each for each in facts["tables"] if each["what"] == "weights"}
    assert weights["cat_0"]["shape"] == [50, 4]
    assert weights["cat_0"]["pieces"] == [{"file": "tables.safetensors", "rows": [0, 50], "columns": [0, 4]}]
    with state.tables("weights") as saved:
        assert weights["cat_3"]["norm"] == pytest.approx(float(next(saved.read_rows("cat_3")).double().norm()))
    names = [each["name"] for each in facts["tensors"] if each["what"] == "state"]
    assert any(name.endswith(":sum") for name in names)
    assert all(each["what"] == "weights" for each in describe(state, ("weights",))["tensors"])


def test_what_is_no_saved_state_is_refused(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "manifest.json").write_text('{"format": "recmill rows", "files": {}}')
    for name, complaint in {
        "nowhere": "nowhere does not exist; give a checkpoint",
        "file": "file is a file; give a checkpoint",
        "empty": "empty is not a checkpoint: it has no manifest.json",
        "rows": "its manifest.json is of 'recmill rows'",
    }.items():
        with pytest.raises(RunError, match=complaint):
            open_state(tmp_path / name)
    with pytest.raises(RunError, match=r"is not a run directory: it has no config\.toml"):
        list_run(tmp_path / "empty")
    for room in ("checkpoints", "model"):
        shutil.rmtree(run_dir / room)
    with pytest.raises(RunError, match="holds no complete checkpoint and no weights"):
        open_state(run_dir)
