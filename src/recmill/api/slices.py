"""The metrics of parts of evaluated rows: what is asked for, and what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recmill.errors import ConfigError
from recmill.slices import (
    GroupMetrics,
    SliceMetrics,
    TopMetrics,
    group_metrics,
    rows_by_value,
    slice_metrics,
    top_metrics,
)

if TYPE_CHECKING:
    from recmill.serve.labelled import RowCollector


@dataclass(frozen=True)
class SliceRequest:
    """Which parts of the rows are asked for."""

    by: tuple[str, ...] = ()
    group: str | None = None
    top: tuple[float, ...] = ()
    max_values: int = 10

    def __post_init__(self) -> None:
        if self.max_values < 1:
            raise ConfigError(f"max_values = {self.max_values}: at least one value of a column is shown")
        for percent in self.top:
            if not 0 < percent <= 100:
                raise ConfigError(f"top = {percent}: give a percentage of the rows above 0 and up to 100, as in 1 5 10")

    def __bool__(self) -> bool:
        return bool(self.by or self.group or self.top)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those whose values are needed, each once."""
        return tuple(dict.fromkeys([*self.by, *([self.group] if self.group else [])]))


@dataclass(frozen=True)
class Slices:
    """The metrics of all rows with their intervals, and of the parts that were asked for."""

    overall: SliceMetrics
    by: dict[str, list[tuple[str, SliceMetrics]]]
    group_column: str | None
    group: GroupMetrics | None
    top: list[TopMetrics]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        by = {
            name: [{"value": value, **metrics.as_dict()} for value, metrics in found] for name, found in self.by.items()
        }
        group = None if self.group is None else {"column": self.group_column, **self.group.as_dict()}
        return {"overall": self.overall.as_dict(), "by": by, "group": group, "top": [t.as_dict() for t in self.top]}


def slice_rows(rows: "RowCollector", request: SliceRequest, probabilities: "np.ndarray[Any, Any]") -> Slices:
    """What was asked for, of rows that were scored; `probabilities` are those of its rows."""
    logits, labels, weights = rows.logits, rows.labels, rows.weights

    def measure(some: "np.ndarray[Any, Any] | slice") -> SliceMetrics:
        return slice_metrics(
            logits[some], probabilities[some], labels[some], None if weights is None else weights[some]
        )

    by = dict[str, list[tuple[str, SliceMetrics]]]()
    for name in dict.fromkeys(request.by):
        values = rows.values_of(name)
        groups = rows_by_value(values.codes, values.texts, request.max_values)
        by[name] = [(text, measure(some)) for text, some in groups]
    group = None
    if request.group is not None:
        group = group_metrics(rows.values_of(request.group).codes, logits, labels, weights)
    top = top_metrics(logits, labels, request.top, weights)
    return Slices(measure(slice(None)), by, request.group, group, top)


def requested(by: str | Sequence[str], group: str | None, top: Sequence[float], max_values: int) -> SliceRequest:
    """The request of plain arguments."""
    columns = (by,) if isinstance(by, str) else tuple(by)
    return SliceRequest(columns, group, tuple(top), max_values)
