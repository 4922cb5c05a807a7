"""The same saved state without records that do not count: segments with such are written anew, the others stay."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from recmill.files import finished_dir, require_free_space
from recmill.lock import locked
from recmill.training.checkpoint.reshard import refuse_existing
from recmill.training.checkpoint.saved_state import is_run
from recmill.training.checkpoint.stored.open_store import OpenStore, open_store
from recmill.training.checkpoint.stored.write_state import SegmentsWriter, finish_state, keep_files

_SMALL_FRAC = 0.5  # of the size of a full segment: several such become one


@dataclass(frozen=True)
class Compacted:
    """What was written where."""

    source: Path
    directory: Path
    bytes_before: int  # of files of rows
    bytes_after: int
    records_before: int
    records_after: int


def compact_store(path: Path, out_dir: Path | None = None) -> Compacted:
    """Write a state anew, in its place or as another directory; no row changes by a bit."""
    if out_dir is not None:
        refuse_existing(out_dir)
    with open_store(path) as store, ExitStack() as stack:
        target = out_dir or store.state.directory
        if out_dir is None:
            stack.enter_context(_run_of(target))
        rewritten = _to_rewrite(store)
        names = {file.path.name for file in store.segments if file.number in rewritten}
        num_live = sum(store.num_living(number) for number in rewritten)
        require_free_space(target.parent, num_live * (store.kind.layout.record_bytes + 16), "the rows that count")
        scratch = stack.enter_context(finished_dir(target, overwrite=out_dir is None))
        kept = keep_files(store.state, scratch, names)
        writer = SegmentsWriter(scratch, store.kind, max((file.number + 1 for file in store.segments), default=0))
        stack.callback(writer.close)
        for records in store.records(rewritten):
            writer.append(records)
        writer.finish()
        finish_state(store.state, scratch, kept, writer.files)
        before = store.segments
        after = [file for file in before if file.number not in rewritten] + writer.files
        sizes = [sum(file.num_bytes for file in files) for files in (before, after)]
        counts = [sum(file.num_records for file in files) for files in (before, after)]
        return Compacted(store.state.directory, target, *sizes, *counts)


def _to_rewrite(store: OpenStore) -> list[int]:
    """The segments with records that do not count, and small ones of which several can be one."""
    sparse = [file.number for file in store.segments if store.num_living(file.number) < file.num_records]
    most = _SMALL_FRAC * store.rows.log.segment_records
    small = [file.number for file in store.segments if file.num_records < most]
    return sorted({*sparse, *small}) if sparse or len(small) > 1 else []


@contextmanager
def _run_of(directory: Path) -> Iterator[None]:
    """Hold the run that a saved state is of, which would drop it, or go on from it."""
    run_dir = next((home for home in directory.absolute().parents[:2] if is_run(home)), None)
    with ExitStack() as stack:
        if run_dir is not None:
            stack.enter_context(locked(run_dir))
        yield
