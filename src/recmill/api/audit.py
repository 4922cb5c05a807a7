"""What is wrong with data, as training would take it: the same files, schemas, splits and bad lines."""

import os
import shlex
import tomllib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.api.data import rows_to_prepare, unpacking_limit
from recmill.errors import ConfigError
from recmill.files import has_manifest
from recmill.recipes.resolve import Overrides, Sources, overrides_tree, resolve, sources_of
from recmill.settings.clicks import TrainConfig
from recmill.settings.columns import Schema, schema_from_tree
from recmill.settings.criteo import CRITEO
from recmill.settings.data import MAX_BAD_FRAC, BadRowPolicy, DataConfig
from recmill.settings.families import CLICK
from recmill.settings.schemas import find_schema

if TYPE_CHECKING:
    from recmill.data.audit.audit import AuditInput
    from recmill.data.audit.report import AuditReport, Limits

OnProgress = Callable[[int], None]
INFER = "auto"  # in place of a schema, or as the recipe that infers one


def audit(
    data: str | Path | None = None,
    *,
    source: str | Path | None = None,
    overrides: Overrides = (),
    files: tuple[str, ...] = (),
    test_files: tuple[str, ...] = (),
    schema: str | None = None,
    coverage: float = 0.99,
    max_overlap: float = 0.01,
    bad_rows: BadRowPolicy | None = None,
    max_bad_frac: float | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> "AuditReport":
    """What is wrong with click logs or prepared rows, in one pass; `findings` lists it.

    `source` is a recipe, a TOML file or a run, whose files, schema and split are taken; `overrides` are settings of
    [data], such as {"data.holdout_frac": 0.1}. Without either, and without `files`, patterns of training files, the
    last day tests and the others train. `schema` may be "auto", which infers one.
    """
    from recmill.data.audit.audit import find_audit_input, refuse_no_threads
    from recmill.data.audit.report import Limits
    from recmill.memory import keep_freed_memory

    num_threads = len(os.sched_getaffinity(0)) if threads is None else threads
    refuse_no_threads(num_threads)
    job = _find_job(data, source, overrides, schema)
    said = job.settings
    limits = Limits(
        coverage,
        max_overlap,
        bad_rows or (said.bad_rows if said else "fail"),
        max_bad_frac if max_bad_frac is not None else (said.max_bad_frac if said else MAX_BAD_FRAC),
    )
    keep_freed_memory()  # chunks come and go
    if has_manifest(job.data):
        if schema or files or test_files:
            told = "its manifest says what its rows are; leave out --schema, --files and --test-files"
            raise ConfigError(f"{job.data} is prepared, and {told}")
        return _audit_prepared(job.data, limits, num_threads, on_progress)
    if said is not None and job.has_split:
        if files or test_files:
            raise ConfigError("--files and --test-files contradict the settings of a split; leave one of both out")
        report = _audit_splits(said, limits, num_threads, on_progress)
    else:
        found = find_audit_input(job.data, files, test_files, job.schema, num_threads)
        found = replace(found, max_unpacked_bytes=said.max_unpacked_bytes if said else None)
        report = _audit_input(found, limits, on_progress)
    return replace(report, training_bad_rows=said.bad_rows if said else "fail", remarks=job.remarks)


@dataclass(frozen=True)
class _Job:
    """What is looked at."""

    data: Path
    schema: Schema
    settings: DataConfig | None = None  # of training, if they are known
    has_split: bool = False  # they say which lines are for what
    remarks: tuple[str, ...] = ()


def _find_job(data: str | Path | None, source: str | Path | None, overrides: Overrides, schema: str | None) -> _Job:
    is_auto = source is not None and str(source) == INFER
    if source is not None and not is_auto:
        settings = _settings_of(replace(sources_of(source), data=data, schema=schema, overrides=overrides))
        return _Job(Path(settings.dir), settings.schema_of_rows, settings, has_split=True)
    if data is None:
        raise ConfigError("there is nothing to look at; give a file or directory with --data, or a run")
    directory = Path(data)
    if has_manifest(directory):
        return _Job(directory, CRITEO)  # the manifest has its own
    own = overrides_tree(overrides, CLICK)
    given = INFER if is_auto and schema is None else schema
    found, remarks = _find_schema(directory, given, unpacking_limit(own))
    if not own:
        return _Job(directory, found, remarks=remarks)
    settings = rows_to_prepare(directory, found, overrides)
    has_split = settings.has_holdout or settings.is_by_time or bool(settings.train_files)
    return _Job(directory, found, settings, has_split, remarks)


def _settings_of(sources: Sources) -> DataConfig:
    """Those of click data, as training would resolve them."""
    config = resolve(sources)
    if not isinstance(config, TrainConfig):
        raise ConfigError("these settings are of a sequence model; an audit looks at the rows of click models")
    if not config.data.dir:
        raise ConfigError("there is nothing to look at; give a file or directory with --data")
    return config.data


def _find_schema(data: Path, given: str | None, max_unpacked_bytes: int | None) -> tuple[Schema, tuple[str, ...]]:
    """The schema that is given; else Criteo's for days and files of its columns, and an inferred one for others."""
    if given not in (None, INFER):
        return find_schema(str(given)), ()
    from recmill.data.infer.schema import infer_schema
    from recmill.data.logs.split import has_days

    is_missing = not data.exists() and not any(character in str(data) for character in "*?[")
    if given is None and (is_missing or has_days(data)):
        return CRITEO, ()
    paths = _paths(data)
    if given is None and _is_criteo(paths[0], max_unpacked_bytes):
        return CRITEO, ()
    text = infer_schema(paths, name=data.stem, max_unpacked_bytes=max_unpacked_bytes).text
    schema = schema_from_tree(tomllib.loads(text), "inferred schema")
    shown = shlex.join(map(str, paths if len(paths) <= 3 else [*paths[:3], "…"]))
    told = "the columns were inferred; write them down, to look at them and to train with them: "
    return schema, (f"{told}`recmill schema infer {shown} --out schema.toml`",)


def _paths(data: Path) -> list[Path]:
    from recmill.data.logs.opening import training_paths

    return training_paths(rows_to_prepare(data, "criteo", ()))


def _is_criteo(path: Path, max_unpacked_bytes: int | None) -> bool:
    """Whether the first line has Criteo's columns; a file of another format has not."""
    from recmill.data.logs.formats import FORMATS, format_named

    if format_named(path) is not None:
        return False
    text = FORMATS[CRITEO.format]
    with closing(text.open(path, CRITEO, max_unpacked_bytes)) as log:
        return text.check_first(log.whole(), CRITEO) is None


def _audit_prepared(directory: Path, limits: "Limits", threads: int, on_progress: OnProgress | None) -> "AuditReport":
    from recmill.data.audit.audit import compile_audit
    from recmill.data.audit.prepared import audit_prepared
    from recmill.data.prepared.directory import read_facts

    compile_audit(read_facts(directory).schema)
    return audit_prepared(directory, limits, threads=threads, on_progress=on_progress)


def _audit_splits(
    settings: DataConfig, limits: "Limits", threads: int, on_progress: OnProgress | None
) -> "AuditReport":
    """The lines that training would take; validation and test are held out alike."""
    from recmill.data.audit.audit import AuditInput
    from recmill.data.logs.opening import open_splits, paths_of

    with closing(open_splits(settings)) as splits:
        found = AuditInput(tuple(paths_of(settings)), (), settings.schema_of_rows, threads, splits)
        return _audit_input(found, limits, on_progress)


def _audit_input(found: "AuditInput", limits: "Limits", on_progress: OnProgress | None) -> "AuditReport":
    from recmill.data.audit.audit import audit_files, compile_kernels

    compile_kernels(found.schema)
    return audit_files(found, limits, on_progress=on_progress)
