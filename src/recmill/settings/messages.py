"""What is said of settings that are wrong: the key, the value, and the nearest setting or the way out."""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from recmill.errors import ConfigError
from recmill.settings.reflect import Section, setting_keys

_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)")
_SHOWN = 60  # characters of a value in a message


def explain(error: ValidationError, kind: Section, where: str = "settings", prefix: str = "") -> str:
    """All that pydantic found, a line each: the key, the value, and the nearest setting or the way out."""
    known = sorted(setting_keys(kind, prefix))
    return "\n".join(dict.fromkeys(_explain(dict(each), known, where, prefix) for each in error.errors()))


def _explain(error: Mapping[str, Any], known: list[str], where: str, prefix: str) -> str:
    key = prefix + ".".join(str(part) for part in error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return str(cause)
    value = shown(error["input"])
    if error["type"] == "extra_forbidden":
        near = _nearest(key, known)
        hint = f"did you mean {near}?" if near else _describe_neighbours(key, known)
        return f"{key} = {value} is not a setting; {hint}"
    if error["type"] == "missing":
        return f"{key} is not set" + (f"; give it with --set {key}=..." if where == "settings" else "")
    return f"{key} = {value} is rejected: {error['msg'].lower()}"


def _describe_neighbours(key: str, known: list[str]) -> str:
    """The settings of the same section, or what there is at the top."""
    section = _INDEX.sub("#", key).rpartition(".")[0]
    near = [name for name in known if section and name.startswith(f"{section}.")]
    if near:
        return f"the settings of {key.rpartition('.')[0]} are {', '.join(_reindexed(name, key) for name in near)}"
    return f"there are {', '.join(sorted({name.split('.')[0] for name in known}))}"


def _nearest(key: str, known: list[str]) -> str | None:
    plain = _INDEX.sub("#", key)
    sections = {name.partition(".#")[0] for name in known if ".#" in name}
    known = [*known, *sections]
    last_words = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
    near = get_close_matches(plain, known, n=1, cutoff=0.7)
    near_word = get_close_matches(plain.rsplit(".", 1)[-1], list(last_words), n=1, cutoff=0.7)
    found = near[0] if near else last_words[near_word[0]] if near_word else None
    return None if found is None else _reindexed(found, key)


def _reindexed(name: str, key: str) -> str:
    """`columns.#.role` with the number that a key such as `columns.8.rol` has there."""
    for number in _INDEX.findall(key):
        name = name.replace("#", number, 1)
    return name


def shown(value: object) -> str:
    """A value as a message shows it, the beginning if it is long."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
