"""Rows of a saved state as a Parquet file: all that exist in its files, or those that changed after a step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recmill.errors import RunError
from recmill.files import require_free_space
from recmill.run_stamp import RUN
from recmill.training.checkpoint.reshard import refuse_existing
from recmill.training.checkpoint.saved_state import refuse_unknown_table
from recmill.training.checkpoint.stored.open_store import OpenStore, open_store, some_of
from recmill.training.checkpoint.stored.rows_file import rows_writer
from recmill.training.checkpoint.stored.value_lookup import find_values

_OTHER_BYTES = 32  # of a row, beside its numbers


@dataclass(frozen=True)
class ExportedRows:
    """What was written, and what there is to know of it."""

    source: Path
    path: Path
    num_rows: int
    from_step: int | None  # of a delta
    to_step: int
    note: str  # why values are not known, if they are not


def export_rows(path: Path, out_path: Path, table: str | None = None) -> ExportedRows:
    """Write the rows that exist in files, of all tables or of one; the others have their first values."""
    refuse_parquet_out(out_path)
    with open_store(path) as store:
        if table is not None:
            refuse_unknown_table(table, [spec.name for spec in store.kind.specs], store.state.directory)
        return _export(store, out_path, table, None)


def export_delta(path: Path, since_step: int, out_path: Path) -> ExportedRows:
    """Write the rows of a checkpoint that changed after a step."""
    refuse_parquet_out(out_path)
    with open_store(path) as store:
        state = store.state
        if state.kind != "checkpoint":
            raise RunError(
                f"{state.directory} is weights alone, which do not say which steps they had; give a checkpoint"
            )
        if not 0 <= since_step <= state.step:
            raise RunError(
                f"--since {since_step:,}: {state.directory} is the state after step {state.step:,}; give a step from 0 "
                f"to {state.step:,}"
            )
        return _export(store, out_path, None, since_step)


def refuse_parquet_out(path: Path) -> None:
    """Complain about a file of another name, or that is there."""
    if path.suffix != ".parquet":
        raise RunError(f"--out {path} is to be a .parquet file; give it that ending")
    refuse_existing(path)


def _export(store: OpenStore, out_path: Path, table: str | None, since_step: int | None) -> ExportedRows:
    kind, first_row = store.kind, store.rows.first_row
    row_bytes = kind.layout.record_bytes + _OTHER_BYTES
    num_live = sum(store.num_living(file.number) for file in store.segments)
    if since_step is None and table is None:
        require_free_space(out_path.parent, num_live * row_bytes, f"the rows in {out_path.name}")
    values, names = find_values(store.state, kind), [spec.name for spec in kind.specs]
    wanted = store.rows.table_rows(table) if table is not None else slice(0, kind.num_rows)
    with rows_writer(out_path, _facts(store, table, since_step), names, row_bytes) as writer:
        for records in store.records():
            is_wanted = (records.rows >= wanted.start) & (records.rows < wanted.stop)
            if since_step is not None:
                is_wanted &= records.steps > since_step + store.updates_before
            if not is_wanted.any():
                continue
            some = some_of(records, np.flatnonzero(is_wanted))
            tables = np.searchsorted(first_row, some.rows, side="right") - 1
            rows = some.rows - first_row[tables]
            told = np.full(len(rows), None, object)
            for each in np.unique(tables).tolist():
                told[tables == each] = values.told(names[each], rows[tables == each])
            steps = np.maximum(some.steps - store.updates_before, 0)
            writer.write(tables, rows, told.tolist(), steps, some.arena)
    return ExportedRows(store.state.directory, out_path, writer.num_rows, since_step, store.state.step, values.note)


def _facts(store: OpenStore, table: str | None, since_step: int | None) -> dict[str, Any]:
    """What the file says of itself."""
    return {
        "what": "rows" if since_step is None else "delta",
        "table": table,
        "from_step": since_step,
        "to_step": store.state.step,
        "store_key": f"{store.kind.store_key:016x}",
        "run": store.state.manifest.get(RUN),
        "store": store.kind.to_json(),
    }
