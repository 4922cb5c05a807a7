"""A schema as the TOML file that says the same, with notes as comments."""

import json
from collections.abc import Mapping, Sequence

from recmill.settings.columns import Schema
from recmill.settings.tree import Settings


def render(schema: Schema, preface: Sequence[str] = (), notes: Mapping[str, str] | None = None) -> str:
    """A schema as the TOML file that says the same, one line for each column, notes as comments."""
    notes = notes or {}
    lines = [f"# {line}" for line in preface]
    for key in ("name", "format", "separator", "header", "quoted", "decimal"):
        value = getattr(schema, key)
        says_so_anyway = key == "header" and schema.separator  # text, of which one wants to know it
        if value != Schema.model_fields[key].default or says_so_anyway:
            lines.append(_noted(f"{key} = {_toml(value)}", notes.get(key)))
    lines.append("columns = [")
    for column in schema.columns:
        lines.append(_noted(f"    {{ {_settings(column)} }},", notes.get(column.name)))
    return "\n".join([*lines, "]", ""])


def _settings(settings: Settings) -> str:
    given = settings.model_dump(mode="json", exclude_none=True)
    return ", ".join(f"{key} = {_toml(value)}" for key, value in given.items())


def _noted(line: str, note: str | None) -> str:
    return f"{line}  # {note}" if note else line


def _toml(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    # of texts and numbers, TOML and JSON write the same, but for one character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
