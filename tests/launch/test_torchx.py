import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from recmill.errors import ConfigError, MissingExtra
from recmill.launch.torchx import TorchxOptions, plan, submit
from tests.launch.golden import assert_golden, make_job
from tests.laws.launcher import WORKER, assert_all_met

RUN = """
import sys
from recmill.launch.job import Job
from recmill.launch.torchx import TorchxOptions, plan, submit
job = Job("test", sys.executable, tuple(sys.argv[2:]), nodes=int(sys.argv[1]), procs=2 // int(sys.argv[1]),
          environment={"OMP_NUM_THREADS": "1"})
sys.exit(submit(plan(job, TorchxOptions())))
"""


def test_one_host_and_several() -> None:
    assert_golden("torchx_one_host.json", plan(make_job(WORD="$x"), TorchxOptions(max_restarts=2)))
    options = TorchxOptions("kubernetes", "registry/recmill:1", {"queue": "ads"})
    assert_golden("torchx_two_hosts.json", plan(make_job(nodes=2), options))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"scheduler": "slurm"}, "--scheduler slurm needs --image"),
        ({"image": "registry/recmill:1"}, "--image registry/recmill:1: --scheduler local_cwd runs what is installed"),
        ({"max_restarts": -1}, "--max-restarts -1"),
    ],
)
def test_options_that_would_do_nothing_or_wrong(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        TorchxOptions(**options)  # type: ignore[arg-type]


def test_planning_needs_no_torchx_and_submitting_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchx.runner", None)
    submission = plan(make_job(), TorchxOptions())
    with pytest.raises(MissingExtra, match=r"--on torchx needs torchx.*pip install torchx==0\.7\.0"):
        submit(submission)


@pytest.mark.skipif(importlib.util.find_spec("torchx") is None, reason="no torchx: pip install torchx==0.7.0")
@pytest.mark.parametrize("nodes", [1, 2])
def test_processes_started_by_torchx_meet(nodes: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(nodes), str(WORKER), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_all_met(tmp_path, 2)
