"""Frozen settings that reject unknown keys: from TOML and overrides, to one resolved copy that can be read back.

1. `Settings` is a section. A class lists other spellings of its keys (`aliases`) and former names (`renamed`).
2. Layers of settings (recipe, file, overrides) are plain nested data; `canonical` gives every key its own name, and
   `laid_over` puts one layer over another, section by section.
3. `layered` does both, and leaves out what belongs to a choice, such as a kind of model, that the new layer replaces.
4. `from_tree` validates the result once and reports all mistakes together.
"""

import json
import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic._internal._model_construction import ModelMetaclass

from recmill.errors import ConfigError
from recmill.settings.messages import explain, shorten, shown
from recmill.settings.reflect import element_type, section_type, sections_in

Tree = dict[str, Any]
_MAX_DEPTH = 16  # of sections and lists in each other; settings have three
# A key of so many parts takes the TOML reader a time that grows with their square.
_DEEP_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*(?:(?:[\w-]{1,99}|"[^"\n]{0,99}"|'[^'\n]{0,99}')[ \t]*\.[ \t]*){16}""", re.MULTILINE
)


class RenamedSetting(FutureWarning):
    """A setting was given by a former name; it still works."""


@dataclass(frozen=True)
class Renamed:
    """The present name of a former setting, and of its former values."""

    key: str
    values: Mapping[str, Any] = field(default_factory=dict)


class _SettingsMeta(ModelMetaclass):
    """Turns pydantic's errors into ours where a section is constructed in Python."""

    def __call__(cls, *args: Any, **values: Any) -> Any:  # noqa: N805 of a class, its instance is a class
        given = dict(_named_now(cls, key, value, "") for key, value in values.items())  # type: ignore[arg-type]
        try:
            return super().__call__(*args, **given)
        except ValidationError as error:
            raise ConfigError(explain(error, cls)) from None  # type: ignore[arg-type]


class Settings(BaseModel, metaclass=_SettingsMeta):
    """A section of settings: frozen, strictly typed, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    aliases: ClassVar[Mapping[str, str]] = {}  # other spellings of a key; a dotted one lies in a section below
    renamed: ClassVar[Mapping[str, Renamed]] = {}  # former names, accepted with a warning
    choice: ClassVar[str] = ""  # the setting that decides which others of the section mean something
    of_every_choice: ClassVar[tuple[str, ...]] = ()  # those that mean the same whatever is chosen
    of_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # sections that only some kinds of model have

    def model_post_init(self, _context: object) -> None:
        """Reject values that contradict each other, all of them at once."""
        if problems := list(self.problems()):
            raise ConfigError("\n".join(problems))

    def problems(self) -> Iterator[str]:
        """What is wrong with the section as a whole, each with the way out."""
        yield from ()

    def with_(self, changes: Mapping[str, Any]) -> Self:
        """The same settings with some changed, by dotted keys; the result is validated as a whole."""
        return from_tree(type(self), layered(type(self), self.to_tree(), nested(changes)))

    def to_tree(self) -> Tree:
        """Plain nested data, without the settings that have no value."""
        return self.model_dump(mode="json", exclude_none=True)


S = TypeVar("S", bound=Settings)


def from_tree(kind: type[S], tree: Mapping[str, Any], where: str = "settings", prefix: str = "") -> S:
    """Validate nested plain data; every message names the key, behind a prefix if any, the value and the way out."""
    refuse_odd(tree, prefix)
    try:
        text = json.dumps(canonical(kind, tree), default=_date_text)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where} hold a value that is neither text, number, truth value nor list: {error}") from None
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(explain(error, kind, where, prefix)) from None


def refuse_odd(value: object, at: str = "", depth: int = 0) -> None:
    """Complain about what no setting is: lists in each other without end, numbers beyond 64 bits, texts beyond UTF-8.

    Without this, code that follows nested values, here and in libraries, would follow them until its stack ends.
    """
    name = at.removesuffix(".") or "settings"
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{shorten(name)} is nested more than {_MAX_DEPTH} deep; no setting is")
    if isinstance(value, Mapping):
        for key, below in value.items():
            refuse_odd(str(key), at)
            refuse_odd(below, f"{at}{key}.", depth + 1)
    elif isinstance(value, list | tuple):
        for each in value:
            refuse_odd(each, at, depth + 1)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{name} = {shown(value)} does not fit into 64 bits; give a smaller number")
    elif isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{shorten(name)} = {shown(value)} holds a NUL character; leave it out")
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{ascii(name)[1:-1]} = {value!a} is not UTF-8, in which settings are written; give a name that is"
            ) from None


def _date_text(value: object) -> str:
    """A date as TOML and Python have it is the text that it was."""
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def to_toml(settings: Settings) -> str:
    """The resolved settings as TOML that `read_toml` and `from_tree` turn back into an equal object."""
    return tomli_w.dumps(settings.to_tree())


def read_toml(path: Path) -> Tree:
    """The nested contents of a TOML file."""
    try:
        tree = parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no settings file {path}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a directory; --config takes a TOML file such as {path}/config.toml") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    try:
        refuse_odd(tree)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return tree


def parse_toml(text: str) -> Tree:
    """TOML as nested data; a ValueError, and no other, says what is wrong with it."""
    if deep := _DEEP_KEY.search(text):
        raise ValueError(f"the key {shorten(deep[0].strip())} has more than {_MAX_DEPTH} parts; no setting has")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets are nested too deep") from None


def nested(changes: Mapping[str, Any]) -> Tree:
    """`{"dense.lr": 0.1}` as `{"dense": {"lr": 0.1}}`; a value may be nested already."""
    tree: Tree = {}
    for key, value in changes.items():
        if not isinstance(key, str):
            raise ConfigError(f"{key!r} = {shown(value)}: settings are named by texts such as 'dense.lr'")
        *sections, name = key.split(".", _MAX_DEPTH + 1)
        if len(sections) > _MAX_DEPTH:
            raise ConfigError(f"{shorten(key)} has more than {_MAX_DEPTH} parts; no setting has")
        refuse_odd(value, f"{key}.")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{key} = {shown(value)}: {section} is a single setting, not a section")
        is_section = isinstance(value, Mapping) and isinstance(node.get(name), dict)
        node[name] = laid_over(node[name], value) if is_section else _plain(value)
    return tree


def parse_assignments(assignments: Sequence[str], kind: type[Settings] | None = None) -> Tree:
    """The nested values of `section.key=value`s; a value is TOML, or else text.

    `none` takes back a value that a recipe or file has given. A list may be written `512,256,1` without brackets, where
    `kind` says that the setting is one.
    """
    changes: Tree = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {assignment} is not of the form section.key=value")
        value = _toml_value(text.strip())
        element = element_type(kind, key.strip()) if kind else None
        if element is not None and not isinstance(value, list) and value is not None:
            value = _as_list(value, element)
        try:
            changes = laid_over(changes, nested({key.strip(): value}))
        except ConfigError as error:
            raise ConfigError(f"--set {error}") from None
    return changes


def laid_over(tree: Mapping[str, Any], changes: Mapping[str, Any], at: str = "") -> Tree:
    """The tree with the values of another in place of its own, section by section."""
    merged = dict(tree)
    for key, value in changes.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = laid_over(below, value, f"{at}{key}.")
        elif isinstance(value, dict) and below is not None and not isinstance(below, dict | str):
            raise ConfigError(f"{at}{key}.{next(iter(value), '')}: {at}{key} is a single setting, not a section")
        else:
            merged[key] = value
    return merged


def layered(kind: type[Settings], tree: Mapping[str, Any], layer: Mapping[str, Any]) -> Tree:
    """The tree with a layer over it, without what the tree says for choices that the layer replaces."""
    layer = canonical(kind, layer)
    return laid_over(_without_replaced(kind, canonical(kind, tree), layer), layer)


def _without_replaced(kind: type[Settings], tree: Tree, layer: Tree) -> Tree:
    kept = dict(tree)
    for name, wanted in layer.items():
        before, info = tree.get(name), kind.model_fields.get(name)
        if info is None or not isinstance(wanted, dict) or not isinstance(before, dict):
            continue
        sections = sections_in(info.annotation)
        if len(sections) > 1:
            kept[name] = _of_other_kind(kind, name, before, wanted)
        elif sections and issubclass(section := sections[0], Settings) and section.choice:
            chosen, choosing = before.get(section.choice), wanted.get(section.choice)
            if chosen is not None and choosing not in (None, chosen):
                kept[name] = {key: before[key] for key in section.of_every_choice if key in before}
        model_kind = kept[name].get("kind")
        for other, kinds in kind.of_kinds.items() if len(sections) > 1 else ():
            if model_kind not in kinds:
                kept.pop(other, None)
    return kept


def _of_other_kind(kind: type[Settings], name: str, before: Tree, wanted: Tree) -> Tree:
    """A section as it was, or what of it a section of another kind has too.

    What was left at the default of the one kind is the other's to choose.
    """
    old, new = section_type(kind, name, before), section_type(kind, name, {**before, **wanted})
    if old is new or old is None or new is None or new.model_fields["kind"].default != wanted.get("kind"):
        return before
    defaults = {key: field.default for key, field in old.model_fields.items()}
    shared = {key: value for key, value in before.items() if key in new.model_fields and value != defaults.get(key)}
    return {**shared, "kind": wanted["kind"]}


def canonical(kind: type[Settings], tree: Mapping[str, Any], at: str = "") -> Tree:
    """The tree with every setting under its own name: other spellings replaced, former names with a warning."""
    found: Tree = {}
    for key, value in tree.items():
        new, given = _named_now(kind, key, value, at)
        if new == key and key in kind.aliases and key not in kind.model_fields:
            new = kind.aliases[key]
        section = section_type(kind, new, given)
        if section is not None and issubclass(section, Settings) and isinstance(given, dict):
            given = canonical(section, given, f"{at}{new}.")
        single = nested({new: given})
        if _holds(found, single) or (new != key and _holds(tree, single)):
            raise ConfigError(f"{at}{key} and {at}{new} are one setting, given twice; leave out one of them")
        found = laid_over(found, single)
    return found


def _named_now(kind: type[Settings], key: str, value: Any, at: str) -> tuple[str, Any]:
    """The present name and value of a setting that may be given by a former one, with a warning if it is."""
    if key not in kind.renamed:
        return key, value
    rename = kind.renamed[key]
    new, given = rename.key, rename.values.get(value, value) if isinstance(value, str) else value
    if (new, given) != (key, value):
        now = f"{at}{new} = {shown(given)}"
        message = f"{at}{key} = {shown(value)} is an old name, which still works; write {now}"
        warnings.warn(message, RenamedSetting, stacklevel=3)
    return new, given


def _holds(tree: Mapping[str, Any], single: Mapping[str, Any]) -> bool:
    """Whether a tree has the only value of another tree."""
    ((key, value),) = single.items()
    if key not in tree:
        return False
    below = tree[key]
    return _holds(below, value) if isinstance(value, dict) and len(value) == 1 and isinstance(below, dict) else True


def flat_keys(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The dotted keys of all values."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flat_keys(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def value_at(settings: Settings, key: str) -> object:
    """The value of a dotted key; None if the section is of a kind that has no such setting."""
    value: object = settings
    for name in key.split("."):
        value = getattr(value, name, None)
    return value


def _as_list(value: Any, element: type) -> Any:
    """`512,256` as [512, 256]; what cannot be a list of that kind stays as it is, to be rejected by its name."""
    if isinstance(value, str):
        parts = [_toml_value(part.strip()) if element is not str else part.strip() for part in value.split(",")]
        is_right = all(isinstance(part, str if element is str else int | float) for part in parts)
        return parts if is_right and value else value
    return [value]


def _toml_value(text: str) -> object:
    if text == "none":
        return None
    if re.fullmatch(r"[+-]?(\.\d+|\d+\.)([eE][+-]?\d+)?", text):  # a number to everyone but TOML
        return float(text)
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    """Tuples, sections and paths as the plain data they stand for."""
    if isinstance(value, Settings):
        return value.to_tree()
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()  # a number of numpy's
    if isinstance(value, Mapping):
        return {key: _plain(below) for key, below in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
