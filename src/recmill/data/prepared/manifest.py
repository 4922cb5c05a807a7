"""What a directory that `recmill prepare` finished says of itself, without a look at its rows."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from recmill.data.prepared.checks import refuse_wrong_facts
from recmill.errors import DataError, RunError
from recmill.files import MANIFEST, VALUES, has_manifest, refuse_altered, stated_checksum
from recmill.settings.columns import schema_from_tree
from recmill.settings.encoding import Encoding
from recmill.settings.schemas import SCHEMAS
from recmill.settings.tree import Tree, from_tree
from recmill.verified import PREPARE_ANEW

ROWS_FORMAT = "recmill prepared 1"
SEQUENCES_FORMAT = "recmill sequences 1"
VOCABULARY = "vocabulary"
PreparedKind = Literal["rows", "sequences"]
_TEXTS = ("README.md", VALUES)
_KINDS: dict[str, PreparedKind] = {ROWS_FORMAT: "rows", SEQUENCES_FORMAT: "sequences"}


def prepared_kind(directory: Path) -> PreparedKind | None:
    """What `recmill prepare` has written there; None of raw logs, and of what is not ours."""
    if not has_manifest(directory):
        return None
    try:
        return _KINDS.get(str(json.loads((directory / MANIFEST).read_text()).get("format")))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def identity_of(manifest: Mapping[str, Any]) -> str:
    """Of the rows that a prepared directory holds, and what they are for, wherever it lies and whoever wrote it."""
    files = {name: stated_checksum(stated) for name, stated in manifest["files"].items() if name not in _TEXTS}
    return hashlib.sha256(json.dumps([files, manifest["subsets"]], sort_keys=True).encode()).hexdigest()


def identity_of_rows(directory: Path) -> str:
    """Of the rows of a prepared directory; empty if it is none."""
    return identity_of(read_rows_manifest(directory)) if has_manifest(directory) else ""


def read_rows_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of prepared rows."""
    path = directory / MANIFEST
    if not has_manifest(directory):
        raise DataError(f"{directory} has no {MANIFEST}: it is not a directory that `recmill prepare` finished")
    try:
        manifest = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}; {PREPARE_ANEW}") from None
    if not isinstance(manifest, dict):
        raise DataError(f"{path} is damaged: it holds no object")
    try:
        refuse_altered(directory, manifest)
    except RunError as error:
        raise DataError(f"{error}; {PREPARE_ANEW}") from None
    if manifest.get("format") == SEQUENCES_FORMAT:
        raise DataError(f"{directory} holds prepared sequences, not rows; a sequence model such as sasrec takes them")
    if manifest.get("format") != ROWS_FORMAT:
        raise DataError(f"{path} is of format {manifest.get('format')!r}, expected {ROWS_FORMAT!r}")
    return manifest


def settings_for_rows(directory: Path) -> Tree:
    """The settings of a run on prepared rows that follow from how they were prepared."""
    manifest = read_rows_manifest(directory)
    tree = settings_for_vocabulary(directory)
    tree["data"]["vocabulary"] = ""  # that of an earlier choice would be another one
    tree["data"]["first_half"] = manifest.get("first_half") or "validation"
    return tree


def settings_for_vocabulary(directory: Path) -> Tree:
    """The settings of a run on raw logs that encodes them as a prepared directory was encoded."""
    manifest = read_rows_manifest(directory)
    try:
        schema = schema_from_tree(manifest["schema"], str(directory / MANIFEST))
        refuse_wrong_facts(manifest, schema, directory)
        from_tree(Encoding, manifest["encoding"])
        is_built_in = SCHEMAS.get(schema.name) == schema
        uses_vocabulary = manifest["encoding"]["category"] == "vocabulary"
        data: Tree = {
            "table_rows": list(manifest["table_rows"]),
            "row_schema": schema.name if is_built_in else schema.to_tree(),
            "vocabulary": str((directory / VOCABULARY).resolve()) if uses_vocabulary else "",
        }
        if rule := manifest.get("multi_hot"):
            data |= {"multi_hot": list(rule["sizes"]), "multi_hot_distribution": rule["distribution"]}
        return {"data": data, "encoding": manifest["encoding"]}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{directory / MANIFEST} is damaged: {error!r}; {PREPARE_ANEW}") from None
