"""The settings that every model has, and the checks that several models share."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field

from recmill.embeddings.table import Pooling
from recmill.errors import ConfigError
from recmill.models.parts.mlp import Init, LayerStyle
from recmill.settings.tree import Settings


def refuse_knots(knots: tuple[float, ...]) -> tuple[float, ...]:
    """Complain about knots that do not rise, or a single one."""
    if knots and (len(knots) == 1 or any(right <= left for left, right in pairwise(knots))):
        raise ConfigError(f"model.dense_knots = {list(knots)}: give at least two numbers, each larger than the last")
    return knots


def refuse_folds(num_folds: int) -> int:
    """Complain about a single fold, which would leave no other rows to count."""
    if num_folds == 1:
        raise ConfigError(
            "model.rate_folds = 1: a row sees the rows of other folds; give at least 2, or 0 for no rates"
        )
    return num_folds


class ModelSettings(Settings):
    """Vectors and how they are pooled, how layers start, and the shares dropped of vectors and behind hidden layers.

    With `dense_norm` the numbers pass through batch norm first; with `dense_knots` the layers see, beside each encoded
    number, how near it is to every knot. With `rate_folds` they see, beside the numbers, how often rows with the same
    value were clicked (`rates.py`), as counted in one pass over the rows to train on.
    """

    embedding_dim: int = Field(default=16, ge=1, le=4096)
    pooling: Pooling = "sum"  # of the vectors of a column with several values
    pooling_by_column: dict[str, Pooling] = Field(default={})  # for columns that differ
    init: Init = "uniform"
    dropout_frac: float = Field(default=0.0, ge=0, lt=1)
    embedding_dropout_frac: float = Field(default=0.0, ge=0, lt=1)
    dense_norm: bool = False
    dense_knots: Annotated[tuple[float, ...], AfterValidator(refuse_knots)] = ()
    rate_folds: Annotated[int, AfterValidator(refuse_folds)] = Field(default=0, ge=0, le=64)  # 0: no rates
    rate_prior_rows: float = Field(default=10.0, gt=0)  # with the rate of all rows, added to those of every value

    @property
    def table_dim(self) -> int:
        """How many numbers a row of a table has."""
        return self.embedding_dim

    def refuse_strange_columns(self, dense_names: Sequence[str], category_names: Sequence[str]) -> None:
        """Complain about columns that the settings name and the data do not have."""
        del dense_names  # some models name those too
        refuse_strangers("pooling_by_column", self.pooling_by_column, category_names)

    def style(self, seed: int, *, batch_norm: bool = False) -> LayerStyle:
        """Of layers with dropout."""
        return LayerStyle(seed, self.init, self.dropout_frac, batch_norm=batch_norm)

    def plain_style(self, seed: int) -> LayerStyle:
        """Of layers without."""
        return LayerStyle(seed, self.init)


def refuse_widths(**layers: Sequence[int]) -> None:
    """Complain about a stack without layers, or with one that is not even 1 wide."""
    for name, widths in layers.items():
        if not widths or min(widths) < 1:
            raise ConfigError(f"model.{name} = {list(widths)}: it needs at least one layer, each at least 1 wide")


def refuse_bottom(bottom: Sequence[int], embedding_dim: int) -> None:
    """Complain about layers over the dense features that do not end in a vector like the embeddings."""
    refuse_widths(bottom=bottom)
    if bottom[-1] != embedding_dim:
        raise ConfigError(
            f"model.bottom ends in {bottom[-1]} and model.embedding_dim is {embedding_dim}: the dense features stand "
            "beside the embeddings as one more vector, so the two must be equal; set "
            f"model.embedding_dim={bottom[-1]} or model.bottom={[*bottom[:-1], embedding_dim]}"
        )


def refuse_top(top: Sequence[int]) -> None:
    """Complain about layers that do not end in a logit."""
    refuse_widths(top=top)
    if top[-1] != 1:
        raise ConfigError(f"model.top ends in {top[-1]}; a click model ends in 1, the logit: set model.top={[*top, 1]}")


def refuse_strangers(setting: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Complain about names that no column has."""
    for name in names:
        if name not in known:
            raise ConfigError(
                f"model.{setting} names {name!r}, which is not one of the columns {', '.join(known)}; "
                "leave it out, or give the schema that has it"
            )
