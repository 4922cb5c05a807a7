"""What a run says of itself: its identity, a line at the top of its config.toml, and the same id in all that it saves.

The line has a checksum of the settings below it too. Both are there, or neither is, since the file is replaced in one
step. Runs of older versions have no such line; whoever edits the settings by hand removes it.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recmill.errors import RunError, UserError
from recmill.files import CONFIG, RESULTS, STDIN, has_manifest, read_listing, write_atomic
from recmill.own_files import (
    ANYTHING,
    HEX,
    INSIDE,
    OrNull,
    Table,
    parse_toml,
    read_own_json,
    read_own_text,
    sealed,
    whole,
)
from recmill.sampled import sampled_digest, size_of

RUN = "run"  # the id, in manifests and results
_METRICS = Table(others=ANYTHING)
_RESULTS = Table(
    fields={
        "step": whole(),
        "rows": whole(),
        "best": OrNull(of=Table(fields={"step": whole(), "model": OrNull(of=INSIDE)}, others=ANYTHING)),
        "validation": _METRICS,
        "test": _METRICS,
    },
    optional={RUN: HEX, "calibration": Table(fields={"weights": INSIDE, "step": whole()}, others=ANYTHING)},
    others=ANYTHING,
)
_OPENING = "# recmill run"
_MANY_FILES = 1000  # of data, beyond which they are compared as a whole
_LINE = re.compile(r"# recmill run ([0-9a-f]{32}), settings ([0-9a-f]{32})\n\n")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run as they lie there, and its id; an older run has none."""

    run_id: str
    tree: dict[str, Any]


def new_run_id(settings: str, data: str) -> str:
    """Of a run with these settings on the data as it is now: runs that do the same have the same, and save the same."""
    return _digest(f"{settings}\0{_describe_data(Path(data)) if data and data != STDIN else ''}")


def _describe_data(path: Path) -> str:
    """Checksums of prepared files, or names and sampled digests of others, which tell one day's data from another's."""
    try:
        return repr(_files_of(path))
    except (OSError, UserError):  # whoever reads the data says what is wrong with it
        return ""


def _files_of(path: Path) -> list[tuple[str, Any]]:
    if has_manifest(path):
        return sorted(read_listing(path)["files"].items())
    files = [path] if path.is_file() else [each for each in path.iterdir() if each.is_file()]
    return sorted((each.name, sampled_digest(each)) for each in files)


def facts_of_data(name: str, path: Path) -> dict[str, str]:
    """The same by name and file, to be compared with what other processes of the run find there."""
    try:
        files = {file: facts for file, facts in _files_of(path) if not file.startswith(".")}
    except (OSError, UserError):
        return {}
    if len(files) > _MANY_FILES:
        return {name: f"{len(files):,} files with digest {_digest(repr(files))[:8]}"}
    return {f"{name}/{file}": _describe_file(facts) for file, facts in files.items()}


def _describe_file(facts: Any) -> str:
    """The size of a file, and a digest of what a manifest says of it."""
    if isinstance(facts, str):
        return f"{size_of(facts):,} bytes with digest {facts.partition('.')[2][:8]}"
    return f"{facts.get('bytes', 0):,} bytes with digest {_digest(repr(sorted(facts.items())))[:8]}"


def write_run_settings(run_dir: Path, settings: str, run_id: str) -> None:
    """Write config.toml with its line."""
    line = f"{_OPENING} {run_id}, settings {_digest(settings)}\n\n" if run_id else ""
    write_atomic(run_dir / CONFIG, line + settings)


def read_run_settings(run_dir: Path) -> RunSettings:
    """The settings of a run, which are those that it has written."""
    path = run_dir / CONFIG
    text = read_own_text(path)
    if not text.startswith(_OPENING):
        return RunSettings("", parse_toml(text, path))
    found = _LINE.match(text)
    if found is None or _digest(text[found.end() :]) != found[2]:
        raise RunError(
            f"{path} is not as recmill wrote it: the checksum in its first line differs; restore it from a copy (the "
            "newest checkpoint has one) or, if you changed it on purpose, remove its first line"
        )
    return RunSettings(found[1], parse_toml(text[found.end() :], path))


def read_run_id(run_dir: Path) -> str:
    """The id of a run; empty if it has none."""
    return read_run_settings(run_dir).run_id if (run_dir / CONFIG).is_file() else ""


def refuse_foreign(path: Path, content: dict[str, Any], run_id: str) -> None:
    """Complain about what says that it is of another run than the one in whose directory it lies."""
    found = content.get(RUN, "")
    if found and run_id and found != run_id:
        raise RunError(
            f"{path} is of another run (id {ascii(found)[1:9]}…) than the {CONFIG} of its directory ({run_id[:8]}…): "
            "one of them was copied there; move it away, or restore the file that belongs here"
        )


def read_results(run_dir: Path) -> dict[str, Any]:
    """What a finished run has measured."""
    way_out = "write it anew with `recmill train --run DIR --resume`"
    results: dict[str, Any] = read_own_json(run_dir / RESULTS, _RESULTS, way_out=way_out, allow_nan=True)
    refuse_foreign(run_dir / RESULTS, results, read_run_id(run_dir))
    return results


def write_results(run_dir: Path, results: dict[str, Any]) -> dict[str, Any]:
    """Write them, with the id of the run and a checksum; what the file holds."""
    run_id = read_run_id(run_dir)
    content = sealed({**results, RUN: run_id} if run_id else results)
    write_atomic(run_dir / RESULTS, json.dumps(content, indent=1))
    return content


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
