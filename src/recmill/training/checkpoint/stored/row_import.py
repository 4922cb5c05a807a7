"""A saved state with rows of a Parquet file in place of its own, as a new complete state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.store.log import Records
from recmill.errors import DataError
from recmill.files import finished_dir, require_free_space
from recmill.run_stamp import RUN
from recmill.training.checkpoint.reshard import refuse_existing
from recmill.training.checkpoint.saved_state import refuse_unknown_table, value_in
from recmill.training.checkpoint.stored.open_store import OpenStore, open_store
from recmill.training.checkpoint.stored.rows_file import RowsFile, RowsOfFile
from recmill.training.checkpoint.stored.write_state import SegmentsWriter, finish_state, keep_files

_PORTION_BYTES = 16 << 20


@dataclass(frozen=True)
class ImportedRows:
    """What was written."""

    source: Path
    directory: Path
    num_rows: int
    step: int  # of the state, and of all in it but these rows
    from_step: int | None  # of a delta
    to_step: int | None  # that the rows are of, if the file says so


def import_rows(path: Path, rows_path: Path, out_dir: Path) -> ImportedRows:
    """Write a state that is as the one given, but for the rows that the file has."""
    refuse_existing(out_dir)
    with open_store(path) as store:
        file = RowsFile(rows_path)
        _refuse_other_store(file, store)
        layout = store.kind.layout
        require_free_space(out_dir.parent, file.num_rows * (layout.record_bytes + 16), "the rows of the file")
        is_taken, num_rows = np.zeros(store.kind.num_rows, np.bool_), 0
        with finished_dir(out_dir) as scratch:
            kept = keep_files(store.state, scratch)
            writer = SegmentsWriter(scratch, store.kind, max((each.number + 1 for each in store.segments), default=0))
            try:
                at_once = max(1, _PORTION_BYTES // layout.record_bytes)
                for found in file.read(layout.dim, layout.state_width, at_once):
                    writer.append(_records_of(found, store, rows_path, is_taken))
                    num_rows += len(found.rows)
                writer.finish()
            finally:
                writer.close()
            finish_state(store.state, scratch, kept, writer.files)
        steps = [_whole(file.facts.get(name)) for name in ("from_step", "to_step")]
        return ImportedRows(store.state.directory, out_dir, num_rows, store.state.step, *steps)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _refuse_other_store(file: RowsFile, store: OpenStore) -> None:
    """Complain about rows of other tables, as far as the file tells, and about a delta that does not fit."""
    facts, kind, directory = file.facts, store.kind, store.state.directory
    for what, theirs, ours in (
        ("dimension", value_in(facts, "store.dim"), kind.dim),
        ("optimizer", value_in(facts, "store.optimizer.kind"), kind.optimizer.kind),
    ):
        if theirs not in (None, ours):
            raise DataError(f"{file.path} holds rows of {what} {theirs}, and those of {directory} are of {what} {ours}")
    if facts.get("what") == "delta":
        _refuse_other_delta(file, store)


def _refuse_other_delta(file: RowsFile, store: OpenStore) -> None:
    facts, directory, step = file.facts, store.state.directory, store.state.step
    if facts.get("store_key") != f"{store.kind.store_key:016x}":
        raise DataError(f"{file.path} is a delta of other tables, or of another seed, than {directory} has")
    theirs, ours = facts.get("run"), store.state.manifest.get(RUN)
    if theirs and ours and theirs != ours:
        raise DataError(f"{file.path} is a delta of run {theirs}, and {directory} is of run {ours}")
    first, last = _whole(facts.get("from_step")), _whole(facts.get("to_step"))
    if first is None or last is None:
        raise DataError(f"{file.path} is damaged: it does not say from which step to which it leads")
    if not first <= step <= last:
        raise DataError(
            f"{file.path} has the rows that changed after step {first:,} and up to step {last:,}, and {directory} is "
            f"the state after step {step:,}; give a state between them, or a delta since step {step:,} or before"
        )


def _records_of(found: RowsOfFile, store: OpenStore, path: Path, is_taken: NDArray[np.bool_]) -> Records:
    """Rows as they are to be written; those that cannot be, or come twice, are rejected by name."""
    names = [spec.name for spec in store.kind.specs]
    used = np.unique(found.table_of).tolist()
    for number in used:
        refuse_unknown_table(found.tables[number], names, store.state.directory)
    first_row = store.rows.first_row
    place = np.array([names.index(name) if name in names else -1 for name in found.tables], np.int64)
    tables = place[found.table_of]

    def refuse(bad: NDArray[np.int64], why: str) -> None:
        if len(bad):
            at = int(bad[0])
            table = store.kind.specs[tables[at]]
            raise DataError(
                f"{path}: row {found.rows[at]:,} of table {table.name} {why.format(num_rows=f'{table.num_rows:,}')}"
            )

    refuse(
        np.flatnonzero((found.rows < 0) | (found.rows >= np.diff(first_row)[tables])),
        "does not exist: the table has {num_rows} rows",
    )
    for what, values in (("weights", found.values.weights), ("state", found.values.state)):
        refuse(np.flatnonzero(~np.isfinite(values).all(axis=1)), f"has {what} that are no finite numbers")
    rows = first_row[tables] + found.rows
    is_first = np.zeros(len(rows), np.bool_)
    is_first[np.unique(rows, return_index=True)[1]] = True
    refuse(np.flatnonzero(is_taken[rows] | ~is_first), "is there more than once")
    is_taken[rows] = True
    steps = np.full(len(rows), store.state.step, np.int64) if found.steps is None else found.steps
    return Records(rows, steps + store.updates_before, found.values)
