"""What is said of settings that are wrong: the key, the value, and the nearest setting or the way out."""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from recmill.errors import ConfigError
from recmill.settings.reflect import Section, other_spellings, setting_keys

_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)")
_SHOWN = 60  # characters of a value in a message


def explain(error: ValidationError, kind: Section, where: str = "settings", prefix: str = "") -> str:
    """All that pydantic found, a line each: the key, the value, and the nearest setting or the way out."""
    known = {key: key for key in sorted(setting_keys(kind, prefix))}
    words = {**dict(other_spellings(kind, prefix)), **known}
    return "\n".join(dict.fromkeys(_explain(dict(each), words, where, prefix) for each in error.errors()))


def _explain(error: Mapping[str, Any], words: Mapping[str, str], where: str, prefix: str) -> str:
    key = prefix + ".".join(str(part) for part in error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return str(cause)
    value = shown(error["input"])
    if error["type"] == "extra_forbidden":
        near = _nearest(key, words)
        hint = f"did you mean {near}?" if near else _describe_neighbours(key, sorted(set(words.values())))
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


def _nearest(key: str, words: Mapping[str, str]) -> str | None:
    """The setting that was probably meant: of those whose last word is like the key's, the most similar as a whole."""
    plain = _INDEX.sub("#", key)
    above = {name.rpartition(".")[0].partition(".#")[0] for name in words}
    names = {**words, **{section: section for section in above if section}}
    last = {name.rpartition(".")[2] for name in names}
    alike = set(get_close_matches(plain.rpartition(".")[2], last, n=3, cutoff=0.7))
    near = get_close_matches(plain, [name for name in names if name.rpartition(".")[2] in alike], n=1, cutoff=0.0)
    return _reindexed(names[near[0]], key) if near else None


def _reindexed(name: str, key: str) -> str:
    """`columns.#.role` with the number that a key such as `columns.8.rol` has there."""
    for number in _INDEX.findall(key):
        name = name.replace("#", number, 1)
    return name


def shown(value: object) -> str:
    """A value as a message shows it, the beginning if it is long."""
    try:
        text = json.dumps(value, default=repr)
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists in each other without end
        text = f"({type(value).__name__})"
    return shorten(text)


def shorten(text: str) -> str:
    """The beginning of a text that is long."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
