"""One process of a job: joins the others and writes down who it is and what all of them have together.

python worker.py OUT_DIR [MARK]: with MARK, the last process dies by SIGKILL unless that file is there, and leaves it.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from recmill.world import joined, read_world


def main(out_dir: Path, mark_path: Path | None) -> None:
    world = read_world()
    with joined(world, timeout_s=60) as group:
        if mark_path is not None and world.rank == world.size - 1 and not mark_path.exists():
            mark_path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        told = {
            "words": {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")},
            "local_size": world.local_size,
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "sums": group.add_up(np.array([1.0, world.rank])).tolist(),
            "ranks": group.gather(world.rank),
            "from_main": group.from_main(f"rank {world.rank}"),
        }
        group.wait_for_all()
    (out_dir / f"rank_{world.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
