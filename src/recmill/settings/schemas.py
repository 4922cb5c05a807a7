"""Schemas by name: those that come with recmill, and any in a TOML file."""

from difflib import get_close_matches
from pathlib import Path

from recmill.errors import ConfigError
from recmill.settings.columns import Schema, read_schema

_DIRECTORY = Path(__file__).parent / "builtin"
SCHEMAS = {name: read_schema(_DIRECTORY / f"{name}.toml") for name in ("criteo", "criteo-unlabelled", "kaggle")}


def find_schema(name: str) -> Schema:
    """A shipped schema by its name, or the one in a file by its path."""
    if name in SCHEMAS:
        return SCHEMAS[name]
    if name.endswith(".toml"):
        return read_schema(Path(name))
    near = get_close_matches(name, SCHEMAS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(SCHEMAS)}, or give a .toml file"
    raise ConfigError(f"there is no schema {name!r}; {hint}")
