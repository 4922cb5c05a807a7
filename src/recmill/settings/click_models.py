"""The settings of click models: what all have, and one class for each kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from recmill.errors import ConfigError
from recmill.settings.tree import Renamed, Settings, from_tree

Pooling = Literal["sum", "mean"]
Init = Literal["uniform", "normal"]
MAX_WIDTH = 2**20  # of a layer
Triangle = Literal["upper", "lower"]


def _rising(knots: tuple[float, ...]) -> tuple[float, ...]:
    """The knots, of which there are none or several that rise."""
    if knots and (len(knots) == 1 or any(right <= left for left, right in pairwise(knots))):
        raise ConfigError(f"model.dense_knots = {list(knots)}: give at least two numbers, each larger than the last")
    return knots


def _several_folds(num_folds: int) -> int:
    """The folds; a single one would leave no other rows to count."""
    if num_folds == 1:
        raise ConfigError(
            "model.target_encoding_folds = 1: a row sees the rows of other folds; give at least 2, or 0 for none"
        )
    return num_folds


class ModelSettings(Settings):
    """Vectors and how they are pooled, how layers start, and what is dropped while training.

    With `dense_norm` the dense features pass through batch norm first; with `dense_knots` the layers see, beside each
    encoded number, how near it is to every knot. With `target_encoding_folds` they see, beside the numbers, how often
    rows with the same value were clicked, as counted in one pass over the training rows.
    """

    renamed: ClassVar[Mapping[str, Renamed]] = {
        "dropout_frac": Renamed("dropout"),
        "embedding_dropout_frac": Renamed("embedding_dropout"),
        "rate_folds": Renamed("target_encoding_folds"),
        "rate_prior_rows": Renamed("target_encoding_prior"),
    }

    embedding_dim: int = Field(default=16, ge=1, le=4096, description="Width of the embeddings.")
    pooling: Pooling = Field(default="sum", description="Of the embeddings of a column with several values.")
    pooling_by_column: dict[str, Pooling] = Field(default={}, description="The pooling of single columns, by name.")
    init: Init = Field(
        default="uniform", description="First weights of layers: uniform as torch's, or normal as OneFlow's."
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of each hidden layer that is dropped.")
    embedding_dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of the embeddings that is dropped.")
    dense_norm: bool = Field(default=False, description="Batch norm of the dense features.")
    dense_knots: Annotated[tuple[float, ...], AfterValidator(_rising)] = Field(
        default=(), description="Knots of piecewise linear features of each encoded number."
    )
    target_encoding_folds: Annotated[int, AfterValidator(_several_folds)] = Field(
        default=0, ge=0, le=64, description="Folds of the target statistics of category values; 0: none."
    )
    target_encoding_prior: float = Field(
        default=10.0, gt=0, description="Rows with the mean click rate that are added to those of every value."
    )

    @property
    def table_dim(self) -> int:
        """How many numbers a row of a table has."""
        return self.embedding_dim

    def problems_of_columns(self, dense_names: Sequence[str], category_names: Sequence[str]) -> Iterator[str]:
        """Columns that the settings name and the data do not have."""
        del dense_names  # some models name those too
        yield from unknown_columns("pooling_by_column", self.pooling_by_column, category_names)


def problems_of_widths(**layers: Sequence[int]) -> Iterator[str]:
    """A stack without layers, or with one that is not even 1 wide, or wider than any."""
    for name, widths in layers.items():
        if not widths or min(widths) < 1:
            yield f"model.{name} = {list(widths)}: it needs at least one layer, each at least 1 wide"
        elif max(widths) > MAX_WIDTH:
            yield f"model.{name} holds {max(widths)}; a layer is at most {MAX_WIDTH} wide"


def problems_of_bottom(bottom: Sequence[int], embedding_dim: int) -> Iterator[str]:
    """Layers over the dense features that do not end in a vector like the embeddings."""
    yield from problems_of_widths(bottom=bottom)
    if bottom and bottom[-1] != embedding_dim:
        yield (
            f"model.bottom ends in {bottom[-1]} and model.embedding_dim is {embedding_dim}: the dense features stand "
            "beside the embeddings as one more vector, so the two must be equal; set "
            f"model.embedding_dim={bottom[-1]} or model.bottom={[*bottom[:-1], embedding_dim]}"
        )


def problems_of_top(top: Sequence[int]) -> Iterator[str]:
    """Layers that do not end in a logit."""
    yield from problems_of_widths(top=top)
    if top and top[-1] != 1:
        yield f"model.top ends in {top[-1]}; a click model ends in 1, the logit: set model.top={[*top, 1]}"


def unknown_columns(setting: str, names: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    """Names that no column has."""
    for name in names:
        if name not in known:
            yield (
                f"model.{setting} names {name!r}, which is not one of the columns {', '.join(known)}; "
                "leave it out, or give the schema that has it"
            )


_BOTTOM = "Widths of the layers over the dense features; the last is model.embedding_dim."
_TOP = "Widths of the layers behind the interaction; the last is 1, the logit."


class DlrmConfig(ModelSettings):
    """DLRM: dot products between all pairs of embeddings and the dense vector.

    The published variants: TorchRec's is the default; OneFlow's has the lower triangle, both paddings and normal first
    values. Padding gives the layer behind it weights for zeros. They never move, but the layer has OneFlow's shape, and
    its first values the spread of the wider one.
    """

    kind: Literal["dlrm"] = Field(default="dlrm", description="The model.")
    bottom: tuple[int, ...] = Field(default=(512, 256, 64, 16), description=_BOTTOM)
    top: tuple[int, ...] = Field(default=(512, 256, 1), description=_TOP)
    triangle: Triangle = Field(default="upper", description="The order of the dot products.")
    self_interaction: bool = Field(default=False, description="Include each vector's product with itself.")
    pad_dense: bool = Field(default=False, description="Pad the dense features to a multiple of 8.")
    pad_interaction: bool = Field(default=False, description="Pad the interaction to a multiple of 8.")

    def problems(self) -> Iterator[str]:
        """Layers that do not fit together."""
        yield from problems_of_bottom(self.bottom, self.embedding_dim)
        yield from problems_of_top(self.top)


class DcnConfig(ModelSettings):
    """DCN v2: low-rank cross layers in place of the dot products; the published ones are the default."""

    kind: Literal["dcn"] = Field(default="dcn", description="The model.")
    bottom: tuple[int, ...] = Field(default=(512, 256, 64, 16), description=_BOTTOM)
    top: tuple[int, ...] = Field(default=(512, 256, 1), description=_TOP)
    cross_layers: int = Field(default=3, ge=1, le=64, description="Number of cross layers.")
    cross_rank: int = Field(default=512, ge=1, le=MAX_WIDTH, description="Rank of each cross layer.")

    def problems(self) -> Iterator[str]:
        """Layers that do not fit together."""
        yield from problems_of_bottom(self.bottom, self.embedding_dim)
        yield from problems_of_top(self.top)


class ProjectionConfig(ModelSettings):
    """DLRM with dot products of projected vectors, M·D and N·D numbers of two branches; TorchRec's are 2048, 2048."""

    kind: Literal["projection"] = Field(default="projection", description="The model.")
    bottom: tuple[int, ...] = Field(default=(512, 256, 64, 16), description=_BOTTOM)
    branch1: tuple[int, ...] = Field(default=(512, 256), description="Widths of the first branch's layers.")
    branch2: tuple[int, ...] = Field(default=(512, 256), description="Widths of the second branch's layers.")
    top: tuple[int, ...] = Field(default=(512, 256, 1), description=_TOP)

    def problems(self) -> Iterator[str]:
        """Layers that do not fit together."""
        yield from problems_of_bottom(self.bottom, self.embedding_dim)
        yield from problems_of_top(self.top)
        for name, widths in (("branch1", self.branch1), ("branch2", self.branch2)):
            yield from problems_of_widths(**{name: widths})
            if widths and widths[-1] % self.embedding_dim:
                yield (
                    f"model.{name} ends in {widths[-1]}: it is cut into vectors of model.embedding_dim = "
                    f"{self.embedding_dim}; let it end in a multiple of that"
                )


class FinalMlpConfig(ModelSettings):
    """FinalMLP: two streams of layers over gated features, fused by a bilinear form with heads."""

    kind: Literal["finalmlp"] = Field(default="finalmlp", description="The model.")
    stream1: tuple[int, ...] = Field(default=(512, 256), description="Widths of the first stream's layers.")
    stream2: tuple[int, ...] = Field(default=(512, 256), description="Widths of the second stream's layers.")
    heads: int = Field(default=4, ge=1, le=MAX_WIDTH, description="Heads of the fusion.")
    gate_hidden: tuple[int, ...] = Field(default=(), description="Hidden widths of the gates; empty: no gates.")
    gate1_columns: tuple[str, ...] = Field(default=(), description="What the first gate sees; empty: a learnt vector.")
    gate2_columns: tuple[str, ...] = Field(default=(), description="What the second gate sees; empty: a learnt vector.")
    batch_norm: bool = Field(default=False, description="Batch norm behind each hidden layer.")

    def problems(self) -> Iterator[str]:
        """Layers that do not fit together."""
        for name, widths in (("stream1", self.stream1), ("stream2", self.stream2)):
            yield from problems_of_widths(**{name: widths})
            if widths and widths[-1] % self.heads:
                yield (
                    f"model.{name} ends in {widths[-1]}, which model.heads = {self.heads} does not divide: "
                    "every head takes an equal share; change one of them"
                )
        if self.gate_hidden:
            yield from problems_of_widths(gate_hidden=self.gate_hidden)
        elif self.gate1_columns or self.gate2_columns:
            yield (
                "model.gate1_columns and model.gate2_columns are what gates see, and there are none; "
                "set model.gate_hidden, for instance to [64]"
            )

    def problems_of_columns(self, dense_names: Sequence[str], category_names: Sequence[str]) -> Iterator[str]:
        """Columns that the settings name and the data do not have."""
        yield from super().problems_of_columns(dense_names, category_names)
        for name, columns in (("gate1_columns", self.gate1_columns), ("gate2_columns", self.gate2_columns)):
            yield from unknown_columns(name, columns, [*dense_names, *category_names])


class DnnConfig(ModelSettings):
    """One MLP over all embeddings and dense features.

    `wide` adds a weight for every category value and every dense feature (Cheng et al., 2016). A value's weight stands
    in its row of the table behind the embedding, and is moved by the tables' optimizer.
    """

    kind: Literal["dnn"] = Field(default="dnn", description="The model.")
    top: tuple[int, ...] = Field(default=(512, 256, 1), description="Widths of the layers; the last is 1, the logit.")
    wide: bool = Field(default=False, description="Add a linear model of all values and dense features.")
    batch_norm: bool = Field(default=False, description="Batch norm behind each hidden layer.")

    def problems(self) -> Iterator[str]:
        """Layers that do not fit together."""
        yield from problems_of_top(self.top)

    @property
    def table_dim(self) -> int:
        """The embedding, and the weight if there is a linear model."""
        return self.embedding_dim + int(self.wide)


class CustomConfig(ModelSettings):
    """Layers that a function of the user's builds; the tables are as for every other model."""

    kind: Literal["custom"] = Field(default="custom", description="The model.")
    layers: str = Field(default="", description="The name of the function, as a record; it is passed from Python.")


CONFIGS: dict[str, type[ModelSettings]] = {
    "dlrm": DlrmConfig,
    "dcn": DcnConfig,
    "projection": ProjectionConfig,
    "finalmlp": FinalMlpConfig,
    "dnn": DnnConfig,
    "custom": CustomConfig,
}
DEFAULT_KIND = "dlrm"


def resolve_model(given: object) -> object:
    """Plain data as settings of their kind, so that messages speak of that kind's settings alone."""
    if isinstance(given, ModelSettings):
        return given
    if not isinstance(given, dict):
        raise ConfigError(f"model = {given!r} is not a section of settings; name a model with model.kind")
    kind = given.get("kind", DEFAULT_KIND)
    if kind not in list(CONFIGS):
        raise ConfigError(f"model.kind = {kind!r} is not a click model; choose from {', '.join(CONFIGS)}")
    try:
        return from_tree(CONFIGS[kind], given, prefix="model.")
    except ConfigError as error:
        raise ConfigError("\n".join(f"{line} (model.kind is {kind})" for line in str(error).splitlines())) from None


ModelConfig = Annotated[
    DlrmConfig | DcnConfig | ProjectionConfig | FinalMlpConfig | DnnConfig | CustomConfig,
    BeforeValidator(resolve_model),
]
