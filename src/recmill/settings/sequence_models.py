"""The settings of sequence models: what all have, and one class for each kind."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from recmill.errors import ConfigError
from recmill.settings.tree import Renamed, Settings, from_tree

Activation = Literal["gelu", "relu"]
Norm = Literal["pre", "post"]
ItemInit = Literal["normal", "uniform", "co_occurrence"]
PositionInit = Literal["normal", "sinusoids"]


class SequenceModelSettings(Settings):
    """Width, depth and dropout of the blocks, and where their weights start."""

    renamed: ClassVar[Mapping[str, Renamed]] = {
        "dropout_frac": Renamed("dropout"),
        "attention_dropout_frac": Renamed("attention_dropout"),
        "item_init": Renamed("item_init", {"neighbours": "co_occurrence"}),
    }

    embedding_dim: int = Field(default=64, ge=1, le=4096, description="Width of the item vectors and of the blocks.")
    num_blocks: int = Field(default=2, ge=1, le=64, description="Number of attention blocks.")
    num_heads: int = Field(default=2, ge=1, description="Heads of each block's attention.")
    hidden_dim: int | None = Field(
        default=None, ge=1, le=2**20, description="Of a block's two linear layers; no value: four times embedding_dim."
    )
    activation: Activation = Field(default="gelu", description="Between a block's linear layers.")
    norm: Norm = Field(default="post", description="Layer norm before a block's parts, or behind their sums.")
    input_norm: bool = Field(default=False, description="Layer norm of the sum of item and position.")
    final_norm: bool = Field(default=False, description="Layer norm behind the last block.")
    scale_items: bool = Field(default=False, description="Multiply item vectors by √D before positions are added.")
    dropout: float = Field(default=0.2, ge=0, lt=1, description="Share that is dropped behind each part of a block.")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of attention weights dropped.")
    init_std: float | None = Field(
        default=None, gt=0, le=1e6, description="Standard deviation of first linear weights; no value: 1/√fan_in."
    )
    position_init: PositionInit = Field(
        default="normal", description="First positions: N(0, position_std), or sines and cosines of that mean square."
    )
    position_std: float = Field(default=0.02, gt=0, le=1e6, description="Standard deviation of the first positions.")
    item_init: ItemInit = Field(
        default="normal",
        description="First item vectors: N(0, item_std), U(−item_std, item_std), or alike for co-occurring items.",
    )
    item_std: float = Field(default=0.02, ge=1e-12, le=1e6, description="Spread of the first item vectors.")
    item_rounds: int | None = Field(
        default=None, ge=1, le=1000, description="Of co_occurrence alone: rounds of mixing; no value: 3."
    )
    transition_weight: float = Field(
        default=0.0,
        ge=0,
        description="Weight of log(1 + how often an item directly followed the newest ones), added to scores; 0: none.",
    )
    transition_events: int = Field(
        default=1, ge=1, le=100, description="How many of the newest events count, each half as much as the next."
    )

    def problems(self) -> Iterator[str]:
        """Heads that do not share the vector evenly, and what would do nothing."""
        if self.item_init != "co_occurrence" and self.item_rounds is not None:
            yield (
                f"model.item_rounds = {self.item_rounds} does nothing for model.item_init = {self.item_init}; "
                "leave it out or set model.item_init=co_occurrence"
            )
        if self.embedding_dim % self.num_heads:
            yield (
                f"model.num_heads = {self.num_heads} does not divide model.embedding_dim = {self.embedding_dim}; "
                "each head gets an equal part of the vector"
            )


class SasRecConfig(SequenceModelSettings):
    """SASRec: scores are dot products with the item vectors that the model also reads."""

    kind: Literal["sasrec"] = Field(default="sasrec", description="The model.")
    activation: Activation = Field(default="relu", description="Between a block's linear layers.")
    norm: Norm = Field(default="pre", description="Layer norm before a block's parts, or behind their sums.")
    final_norm: bool = Field(default=True, description="Layer norm behind the last block.")


class Bert4RecConfig(SequenceModelSettings):
    """BERT4Rec, bidirectional: GELU, norms behind the sums, one more layer before scores made with item vectors."""

    kind: Literal["bert4rec"] = Field(default="bert4rec", description="The model.")
    norm: Norm = Field(default="post", description="Layer norm before a block's parts, or behind their sums.")
    input_norm: bool = Field(default=True, description="Layer norm of the sum of item and position.")
    head: bool = Field(default=True, description="A linear layer, the activation and a norm behind the blocks.")
    output: Literal["tied", "own"] = Field(
        default="tied", description="Scores by the item vectors, or by weights of their own."
    )
    output_bias: bool = Field(default=True, description="A score of its own for every item.")


SEQUENCE_CONFIGS: dict[str, type[SequenceModelSettings]] = {"bert4rec": Bert4RecConfig, "sasrec": SasRecConfig}


def resolve_sequence_model(given: object) -> object:
    """Plain data as settings of their kind, so that messages speak of that kind's settings alone."""
    if isinstance(given, SequenceModelSettings):
        return given
    if not isinstance(given, dict) or given.get("kind") not in list(SEQUENCE_CONFIGS):
        shown = given.get("kind") if isinstance(given, dict) else given
        raise ConfigError(f"model.kind = {shown!r} is not a sequence model; choose from {', '.join(SEQUENCE_CONFIGS)}")
    kind = given["kind"]
    try:
        return from_tree(SEQUENCE_CONFIGS[kind], given, prefix="model.")
    except ConfigError as error:
        raise ConfigError("\n".join(f"{line} (model.kind is {kind})" for line in str(error).splitlines())) from None


SequenceModelConfig = Annotated[Bert4RecConfig | SasRecConfig, BeforeValidator(resolve_sequence_model)]
