"""What a run has recorded."""

import json
from pathlib import Path


def read_records(run_dir: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
