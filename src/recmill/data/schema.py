"""Columns, their roles and kinds: the contract between data and models."""

from collections import Counter
from itertools import groupby
from typing import Literal

import numpy as np

from recmill.config import Settings
from recmill.data import fields, text
from recmill.errors import ConfigError

Role = Literal["label", "dense", "category", "ignored"]
Kind = Literal["int", "float", "hex", "string"]

# The roles and kinds that go together, and what the kernel calls them.
KERNEL_KINDS: dict[tuple[Role, Kind | None], int] = {
    ("label", "int"): fields.LABEL,
    ("dense", "int"): fields.INT_NUMBER,
    ("dense", "float"): fields.FLOAT_NUMBER,
    ("category", "hex"): fields.HEX_CATEGORY,
    ("category", "int"): fields.INT_CATEGORY,
    ("category", "string"): fields.STRING_CATEGORY,
    ("ignored", None): fields.IGNORED,
}
FORBIDDEN_SEPARATORS = set("0123456789abcdefABCDEF+-.\n\r\0")


class Column(Settings):
    """One field of every line."""

    name: str
    role: Role
    kind: Kind | None = None

    def model_post_init(self, _context: object) -> None:
        """Refuse a kind that makes no sense in this role."""
        if (self.role, self.kind) not in KERNEL_KINDS:
            kinds = [kind for role, kind in KERNEL_KINDS if role == self.role]
            raise ConfigError(f"column {self.name}: a {self.role} cannot be of kind {self.kind}; choose from {kinds}")


class Schema(Settings):
    """The fields of a line, in their order."""

    name: str
    separator: str
    columns: tuple[Column, ...]

    def model_post_init(self, _context: object) -> None:
        """Refuse what no file can satisfy."""
        if len(self.separator.encode()) != 1 or self.separator in FORBIDDEN_SEPARATORS:
            raise ConfigError(f"schema {self.name}: {self.separator!r} cannot separate fields; use a tab or a comma")
        if not self.columns:
            raise ConfigError(f"schema {self.name} names no column; a line has at least one")
        names = [column.name for column in self.columns]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"schema {self.name} names {', '.join(sorted(twice))} more than once")
        if len(self._names("label")) > 1:
            raise ConfigError(f"schema {self.name} has several labels: {', '.join(self._names('label'))}")

    def _names(self, role: Role) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.role == role)

    @property
    def has_label(self) -> bool:
        """Whether rows say what happened; rows to be scored do not."""
        return bool(self._names("label"))

    @property
    def dense_names(self) -> tuple[str, ...]:
        """The number columns, in file order."""
        return self._names("dense")

    @property
    def category_names(self) -> tuple[str, ...]:
        """The category columns, in file order."""
        return self._names("category")

    def layout(self) -> text.Layout:
        """What the text kernel needs to know."""
        runs, taken = list[fields.Run](), Counter[str]()
        for (role, kind), columns in groupby((column.role, column.kind) for column in self.columns):
            first, place = taken[role], taken.total()
            taken[role] += len(list(columns))
            runs.append(fields.Run(KERNEL_KINDS[role, kind], first, taken[role], place))
        return text.Layout(np.uint8(ord(self.separator)), len(self.columns), np.array(runs, np.int64))
