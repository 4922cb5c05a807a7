"""Frozen settings that refuse strangers: from TOML and `--set`, to one resolved copy that can be read back."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from recmill.errors import ConfigError


class Settings(BaseModel):
    """A section of settings: frozen, strictly typed, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


S = TypeVar("S", bound=Settings)
Tree = dict[str, Any]


def from_tree(kind: type[S], tree: Mapping[str, Any], where: str = "settings", prefix: str = "") -> S:
    """Validate nested plain data; every complaint names the key, behind a prefix if any, the value and the way out."""
    try:
        text = json.dumps(tree)
    except TypeError as error:
        raise ConfigError(f"{where} hold a value that is neither text, number, truth value nor list: {error}") from None
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        known = sorted(setting_keys(kind, prefix))
        raise ConfigError("\n".join(_explain(dict(e), known, where, prefix) for e in error.errors()[:3])) from None


def to_toml(settings: Settings) -> str:
    """The resolved settings as TOML that `read_toml` and `from_tree` turn back into an equal object."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))


def read_toml(path: Path) -> Tree:
    """The nested contents of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no settings file {path}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a directory; --config takes a TOML file such as {path}/config.toml") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def with_assignments(tree: Mapping[str, Any], assignments: Sequence[str]) -> Tree:
    """The tree with each `section.key=value` laid over it; a value is TOML, or else taken as text.

    `none` takes a value back that a recipe or file has given, where a setting may be without one.
    """
    merged = json.loads(json.dumps(tree))
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {assignment} is not of the form section.key=value")
        *sections, name = key.strip().split(".")
        node = merged
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise ConfigError(f"--set {assignment}: {section} is a single setting, not a section")
        node[name] = _toml_value(text.strip())
    return dict(merged)


def laid_over(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> Tree:
    """The tree with the values of another in place of its own, section by section."""
    merged = dict(tree)
    for key, value in changes.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def value_at(settings: Settings, key: str) -> object:
    """The value of a dotted key; None if the section is of a kind that has no such setting."""
    value: object = settings
    for name in key.split("."):
        value = getattr(value, name, None)
    return value


def numbers_of_kind(
    settings: Settings, section: str, kind: str, defaults: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The numbers a section's kind takes, given or by default; one that it has no use for is refused."""
    taken = defaults[kind]
    for name in sorted({name for numbers in defaults.values() for name in numbers} - taken.keys()):
        if (value := getattr(settings, name)) is not None:
            raise ConfigError(
                f"{section}.{name} = {value} does nothing for {section}.kind = {kind}; leave it out "
                f"({kind} takes {', '.join(['lr', *taken])})"
            )
    given = {name: getattr(settings, name) for name in taken}
    return {name: taken[name] if value is None else value for name, value in given.items()}


def setting_keys(kind: type[Settings], prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings, those of every kind where a section may be of several."""
    for name, field in kind.model_fields.items():
        nested = [t for t in (field.annotation, *get_args(field.annotation)) if _is_section(t)]
        if nested and str not in get_args(field.annotation):  # a section that may be given by name is one setting
            yield from dict.fromkeys(key for section in nested for key in setting_keys(section, f"{prefix}{name}."))
        else:
            yield f"{prefix}{name}"


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)


def _toml_value(text: str) -> object:
    if text == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _describe_neighbours(key: str, known: list[str]) -> str:
    """The settings of the same section, or what there is at the top."""
    section = key.rpartition(".")[0]
    if section:
        return f"the settings of {section} are {', '.join(name for name in known if name.startswith(f'{section}.'))}"
    return f"there are {', '.join(sorted({name.split('.')[0] for name in known}))}"


def _explain(error: Mapping[str, Any], known: list[str], where: str, prefix: str) -> str:
    key = prefix + ".".join(str(part) for part in error["loc"])
    value = json.dumps(error["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    if error["type"] == "extra_forbidden":
        near = _nearest(key, known)
        hint = f"did you mean {near}?" if near else _describe_neighbours(key, known)
        return f"{key} = {shown} is not a setting; {hint}"
    if error["type"] == "missing":
        return f"{key} is not set" + (f"; give it with --set {key}=..." if where == "settings" else "")
    return f"{key} = {shown} is refused: {error['msg'].lower()}"


def _nearest(key: str, known: list[str]) -> str | None:
    last_words = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
    near = get_close_matches(key, known, n=1, cutoff=0.7)
    near_word = get_close_matches(key.rsplit(".", 1)[-1], list(last_words), n=1, cutoff=0.7)
    if near:
        return near[0]
    return last_words[near_word[0]] if near_word else None
