"""A tiny program of many processes: adds up one number at each step, keeps count in a file, and goes on from there.

python benchmarks/all_reduce.py STATE [STEPS]
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from recmill.files import write_atomic
from recmill.world import joined, read_world


def main(state_path: Path, num_steps: int) -> None:
    """Take the steps that are left; the total is the same however often the way there was interrupted."""
    world = read_world()
    with joined(world, timeout_s=60) as group:
        state = json.loads(state_path.read_text()) if world.is_main and state_path.exists() else [0, 0.0]
        first_step, total = group.from_main(state)
        print(f"rank {world.rank} of {world.size} begins at step {first_step}", flush=True)
        for step in range(first_step, num_steps):
            time.sleep(0.1)
            total += float(group.add_up(np.array([float(world.rank + step)]))[0])
            if world.is_main:
                write_atomic(state_path, json.dumps([step + 1, total]))
        expected = sum(rank + step for rank in range(world.size) for step in range(num_steps))
        if total != expected:
            raise SystemExit(f"rank {world.rank} has {total}, not {expected}")
        print(f"rank {world.rank} of {world.size} ends at step {num_steps} with {total:.0f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100)
