"""What a class of settings can be asked: its keys, its sections, and the types of its values."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel

Section = type[BaseModel]


def setting_keys(kind: Section, prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings, those of every kind where a section may be of several."""
    for name, info in kind.model_fields.items():
        sections = sections_in(info.annotation)
        if sections and str not in get_args(info.annotation):  # a section that may be given by name is one setting
            marks = "#." if is_tuple(info.annotation) else ""
            below = (key for section in sections for key in setting_keys(section, f"{prefix}{name}.{marks}"))
            yield from dict.fromkeys(below)
        else:
            yield f"{prefix}{name}"


def other_spellings(kind: Section, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The dotted aliases of settings, and the settings they stand for."""
    for alias, name in getattr(kind, "aliases", {}).items():
        yield f"{prefix}{alias}", f"{prefix}{name}"
    for name, info in kind.model_fields.items():
        for section in sections_in(info.annotation):
            yield from other_spellings(section, f"{prefix}{name}.")


def section_type(kind: Section, key: str, value: object) -> Section | None:
    """The class of the section that a key holds; of several, the one whose `kind` the value names."""
    info = kind.model_fields.get(key)
    sections = sections_in(info.annotation) if info else []
    if len(sections) < 2:
        return sections[0] if sections and info and not is_tuple(info.annotation) else None
    named = value.get("kind") if isinstance(value, dict) else None
    return next((each for each in sections if each.model_fields["kind"].default == named), sections[0])


def sections_in(annotation: object) -> list[Section]:
    """The classes of settings that a field may hold."""
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, Annotated, tuple):
        return [section for part in get_args(annotation) for section in sections_in(part)]
    return []


def is_tuple(annotation: object) -> bool:
    """Whether a field is a list."""
    return get_origin(annotation) is tuple


def element_type(kind: Section, key: str) -> type | None:
    """Of a setting that is a list: what it is a list of."""
    name, _, rest = key.partition(".")
    if rest:
        info = kind.model_fields.get(name)
        below = (element_type(section, rest) for section in (sections_in(info.annotation) if info else []))
        return next((element for element in below if element), None)
    name = getattr(kind, "aliases", {}).get(name, name)
    info = kind.model_fields.get(name)
    if info is None or not is_tuple(info.annotation):
        return None
    element: type = get_args(info.annotation)[0]
    return element
