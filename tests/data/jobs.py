"""Preparations of small logs."""

from pathlib import Path
from typing import Any

from recmill.data.logs.split import find_days, split_by_day
from recmill.data.prepared.prepare import PrepareJob
from recmill.files import CHECKSUM
from recmill.settings.criteo import CRITEO


def job_of(data_dir: Path, out_dir: Path, **changes: Any) -> PrepareJob:
    return PrepareJob(split_by_day(find_days(data_dir)), CRITEO, out_dir, **{"part_bytes": 40_000, **changes})


def digests_of(manifest: dict[str, Any]) -> dict[str, str]:
    return {name: facts[CHECKSUM] for name, facts in manifest["files"].items()}
