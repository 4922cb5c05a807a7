import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2")
def test_two_hosts_recover_when_one_loses_a_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.two_hosts", "--logs", str(tmp_path), "--timeout", "200"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=280)
    told = json.loads(done.stdout)
    assert (done.returncode, told["statuses"]) == (0, [0, 0])
    assert told["last_lines"] == [f"rank {rank} of 2 ends at step 100 with 10000" for rank in (0, 1)]
