"""States that cannot be written, directories that are taken, and runs that are asked to end."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from recmill.errors import FailureError, Interrupted, RunError
from recmill.lock import LOCK, locked
from recmill.training.checkpoint import saver as saver_module
from recmill.training.checkpoint import snapshot as snapshot_module
from recmill.training.checkpoint.checkpoint import read_checkpoint, write_part
from recmill.training.checkpoint.saver import Saver
from recmill.training.checkpoint.snapshot import Patience, Snapshot, State, checkpoint_snapshot
from recmill.training.click import task as click
from recmill.training.click.assemble import assemble
from recmill.training.click.step import take_step
from recmill.training.job import run_job
from recmill.training.loop.ledger import forget_behind, read_ledger
from recmill.training.progress import Progress
from recmill.world import Group, World
from tests.training.checkpoint.saved import OneOfTwo, dealt
from tests.training.conftest import Resolve


def test_a_full_disk_costs_one_state_and_not_the_run(
    resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, told = assemble(resolve()), list[str]()

    def fail_at_two(snapshot: Snapshot, scratch: Path) -> None:
        write_part(snapshot, scratch)
        if snapshot.step == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saver_module, "write_part", fail_at_two)
    with Saver(tmp_path, Group(), keep=2, score_name="auroc", tell=told.append) as saver:
        for step in (1, 2, 3):
            saver.save(parts, Progress(step=step))
        assert saver.wait() is None
    assert [path.name for path in saver.checkpoint_dirs()] == ["step_0000000001", "step_0000000003"]
    assert len(told) == 1
    assert "No space left on device; the run goes on" in told[0]
    for directory in saver.checkpoint_dirs():
        read_checkpoint(directory, parts)
    assert not list((tmp_path / "checkpoints").glob(".*")), "nothing half-written is left"


class OneGroup(Group):
    """Of one of two processes, which have agreed on a token."""

    def from_main(self, value: Any) -> Any:
        return "agreed" if isinstance(value, str) else value


@pytest.mark.parametrize("full_rank", [0, 1])
def test_a_full_disk_of_one_process_leaves_nothing_of_the_other(
    full_rank: int, resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = assemble(resolve())
    is_other_done = threading.Event()

    def fail_at_two(snapshot: Snapshot, scratch: Path) -> None:
        is_full = snapshot.step == 2 and snapshot.world.rank == full_rank
        if not is_full and snapshot.step == 2:
            time.sleep(0.2)  # still writes when the other one has given up
        write_part(snapshot, scratch)
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        is_other_done.set()

    monkeypatch.setattr(saver_module, "write_part", fail_at_two)
    told: tuple[list[str], list[str]] = [], []
    groups = [OneGroup(World(rank=rank, size=2)) for rank in range(2)]
    savers = [
        Saver(tmp_path, group, keep=3, score_name="auroc", tell=told[group.world.rank].append) for group in groups
    ]
    for step in (1, 2, 3):
        for rank, saver in enumerate(savers):
            saver.save(OneOfTwo(parts, dealt(parts, rank)), Progress(step=step))
        if step == 2:
            assert is_other_done.wait(30)
    for saver in savers:
        assert saver.wait() is None
    assert [path.name for path in savers[0].checkpoint_dirs()] == ["step_0000000001", "step_0000000003"]
    assert not list((tmp_path / "checkpoints").glob(".*")), "nothing half-written is left"
    assert all("No space left on device; the run goes on" in line for lines in told for line in lines)
    assert len(told[0]) == 1, "the main process knows of it, whoever it was"


@pytest.mark.parametrize("available", [0, 1 << 40])
def test_a_state_is_saved_as_it_was_whether_or_not_a_copy_fits(
    available: int, resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = assemble(resolve())
    monkeypatch.setattr(saver_module, "available_bytes", lambda _num_procs: available)
    began, go_on = threading.Event(), threading.Event()

    def slowly(snapshot: Snapshot, scratch: Path) -> None:
        began.set()
        assert available == 0 or go_on.wait(30), "training goes on only if there is a copy"
        write_part(snapshot, scratch)

    monkeypatch.setattr(saver_module, "write_part", slowly)
    expected = checkpoint_tensors(parts)
    with Saver(tmp_path, Group(), keep=2, score_name="auroc", tell=print) as saver:
        saver.save(parts, Progress(step=1))
        assert began.wait(30)
        with torch.no_grad():
            for tensor in checkpoint_snapshot(parts, Progress()).tensors["tables.safetensors"].values():
                tensor.add_(1)
        go_on.set()
        assert saver.wait() is None
    read_checkpoint(saver.checkpoint_dirs()[0], parts)
    for name, tensor in checkpoint_tensors(parts).items():
        assert torch.equal(tensor, expected[name]), name


def checkpoint_tensors(parts: State) -> dict[str, torch.Tensor]:
    groups = checkpoint_snapshot(parts, Progress()).tensors.values()
    return {name: tensor.clone() for group in groups for name, tensor in group.items()}


def test_a_run_directory_has_one_owner(tmp_path: Path) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    with locked(tmp_path), pytest.raises(RunError, match=rf"is in use by {owner}"), locked(tmp_path):
        pass
    assert not (tmp_path / LOCK).exists()
    with locked(tmp_path):
        pass


def test_a_lock_whose_owner_died_is_no_lock(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib; from recmill.lock import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / LOCK).exists()
    with locked(tmp_path):
        pass


def test_the_lock_of_another_host_is_believed(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(json.dumps({"host": "elsewhere", "pid": 7}))
    with (
        pytest.raises(RunError, match=r"in use by process 7 on elsewhere; if that one is gone, remove .*\.lock"),
        locked(tmp_path),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_run_that_is_asked_to_end_saves_first_and_goes_on_to_the_same_bytes(
    number: signal.Signals, resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve("cadence.keep_ledger=true", "stop.max_epochs=2")
    run_job(config, tmp_path / "whole")
    taken = list[int]()

    def interrupted(*args: object) -> float:
        taken.append(1)
        if len(taken) == 7:
            os.kill(os.getpid(), number)
        return take_step(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(click, "take_step", interrupted)
        with pytest.raises(Interrupted, match=r"ended as asked after step 7; the state is saved") as caught:
            run_job(config, tmp_path / "parted")
    assert caught.value.exit_status == 128 + number
    run_job(config, tmp_path / "parted", resume=True)
    for name in ("model/tables.safetensors", "model/dense.safetensors"):
        assert (tmp_path / "parted" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert read_ledger(tmp_path / "parted").tobytes() == read_ledger(tmp_path / "whole").tobytes()
    assert len(read_ledger(tmp_path / "whole")) == 4000


def test_a_ledger_forgets_what_will_be_done_again(resolve: Resolve, tmp_path: Path) -> None:
    run_job(resolve("cadence.keep_ledger=true"), tmp_path / "run")
    with next((tmp_path / "run" / "ledger").iterdir()).open("ab") as file:
        file.write(b"torn")
    forget_behind(tmp_path / "run", 3)
    entries = read_ledger(tmp_path / "run")
    assert sorted(set(entries["step"].tolist())) == [1, 2, 3]
    assert len(entries) == 300


def test_a_part_that_does_not_come_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Least of all where the run has failed, as when the process that would write it was killed."""
    with pytest.raises(FailureError, match=r"part did not come within 0 s: the process that writes it is lost"):
        Patience(0.05).await_file(tmp_path / "part")
    monkeypatch.setattr(snapshot_module, "_FAILED_S", 0.05)
    patience, began = Patience(600), time.monotonic()
    patience.run_failed()
    with pytest.raises(FailureError, match="did not come"):
        patience.await_file(tmp_path / "part")
    assert time.monotonic() - began < 60
    (tmp_path / "part").touch()
    patience.await_file(tmp_path / "part")
