"""What is told of rows in files agrees with the rows."""

from pathlib import Path

import pytest

from recmill.embeddings.store.residency import NEVER
from recmill.errors import RunError
from recmill.training.checkpoint.stored.describe import describe_store
from recmill.training.checkpoint.stored.open_store import open_store
from tests.laws.tiered_runs import checkpoint_of, train


def test_counts_agree_with_each_other_and_with_the_files(tiered_run: Path) -> None:
    facts = describe_store(tiered_run)
    assert facts["path"] == str(checkpoint_of(tiered_run, 6)), "of a run, the newest"
    assert (facts["step"], facts["dim"], facts["optimizer"], facts["rows"]) == (6, 4, "rowwise_adagrad", 1300)
    assert facts["records"] == sum(each["records"] for each in facts["segments"]) > facts["live_records"]
    assert facts["live_records"] == sum(each["stored_rows"] for each in facts["tables"])
    files = sorted(checkpoint_of(tiered_run, 6).glob("*.rows"))
    assert facts["bytes"] == sum(path.stat().st_size for path in files)
    assert [each["file"] for each in facts["segments"]] == [path.name for path in files]
    with open_store(tiered_run) as store:
        assert facts["live_records"] == (store.rows.where != NEVER).sum()
        assert facts["live_records"] == sum(len(records.rows) for records in store.records())
        assert store.updates_before == 0


def test_what_has_no_rows_in_files_is_rejected(tiny_world_dir: Path, tmp_path: Path) -> None:
    run = train(tiny_world_dir, tmp_path / "run")
    with pytest.raises(RunError, match=r"lie in safetensors; `recmill checkpoint show"):
        describe_store(run)
    with pytest.raises(RunError, match="does not exist"):
        describe_store(tmp_path / "nothing")
