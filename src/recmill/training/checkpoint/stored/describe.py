"""Tables, records, segments and bytes of a saved state whose rows lie in files."""

from pathlib import Path
from typing import Any

import numpy as np

from recmill.embeddings.store.residency import NEVER
from recmill.training.checkpoint.stored.open_store import open_store


def describe_store(path: Path) -> dict[str, Any]:
    """All there is to know without reading the rows, as plain data."""
    with open_store(path, verify=False) as store:
        kind, rows = store.kind, store.rows
        segments = [
            {
                "file": file.path.name,
                "records": file.num_records,
                "live_records": store.num_living(file.number),
                "live_frac": _share(store.num_living(file.number), file.num_records),
                "bytes": file.num_bytes,
            }
            for file in store.segments
        ]
        num_records, num_live = (sum(int(str(each[key])) for each in segments) for key in ("records", "live_records"))
        return {
            "path": str(store.state.directory),
            "kind": store.state.kind,
            "step": store.state.step,
            "dim": kind.dim,
            "state_width": kind.layout.state_width,
            "optimizer": kind.optimizer.kind,
            "seed": kind.seed,
            "store_key": f"{kind.store_key:016x}",
            "rows": kind.num_rows,
            "records": num_records,
            "live_records": num_live,
            "live_frac": _share(num_live, num_records),
            "bytes": sum(file.num_bytes for file in store.segments),
            "tables": [
                {
                    "name": spec.name,
                    "rows": spec.num_rows,
                    "stored_rows": int(np.count_nonzero(rows.where[rows.table_rows(spec.name)] != NEVER)),
                }
                for spec in kind.specs
            ],
            "segments": segments,
        }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 5) if whole else 1.0
