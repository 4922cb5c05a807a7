"""Law *launcher*: every process of a job is told who it is, and finds the others."""

import json
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")


def assert_all_met(out_dir: Path, num_procs: int, said: str = "") -> list[dict[str, object]]:
    """Each process knew its rank, and all of them added up and handed round the same; what they wrote down.

    `said` is what the launcher printed, to be read where one of them has written nothing.
    """
    wrote = sorted(path.name for path in out_dir.glob("rank_*.json"))
    assert wrote == [f"rank_{rank}.json" for rank in range(num_procs)], f"these alone have written: {wrote}; {said}"
    told = [json.loads((out_dir / f"rank_{rank}.json").read_text()) for rank in range(num_procs)]
    for rank, each in enumerate(told):
        assert each["words"].keys() == {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"}
        assert (each["words"]["RANK"], each["words"]["WORLD_SIZE"]) == (str(rank), str(num_procs))
        assert each["sums"] == [num_procs, sum(range(num_procs))]
        assert each["ranks"] == list(range(num_procs))
        assert each["from_main"] == "rank 0"
    return told
