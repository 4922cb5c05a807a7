"""A sequence model with its item vectors, and its scores of all items."""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.embeddings.piece import RowTable
from recmill.models.parts.attention import Packing, pack
from recmill.models.sequence.bert4rec import Bert4Rec
from recmill.models.sequence.encoder import first_item_vectors
from recmill.models.sequence.sasrec import SasRec
from recmill.models.sequence.transitions import Transitions, newest_items
from recmill.settings.sequence_models import SequenceModelConfig

# Legend: B sequences, N events of all of them, M events with something to predict, V items, D dimension.

SEQUENCE_MODELS: dict[str, type[Any]] = {"bert4rec": Bert4Rec, "sasrec": SasRec}


class Ranker(nn.Module):
    """Layers, and item vectors that are a weight like others or, with `tables`, rows of the engine's.

    Items are 1 … V. Row 0 is no item and never looked up; row V + 1 is what stands where an item is hidden.
    """

    def __init__(
        self, config: SequenceModelConfig, num_items: int, max_length: int, tables: RowTable | None, *, seed: int
    ) -> None:
        super().__init__()
        self.num_items, self.max_length = num_items, max_length
        self.layers = SEQUENCE_MODELS[config.kind](config, num_items, max_length, seed=seed)
        self.task: Literal["next", "masked"] = self.layers.task
        self.is_causal = self.task == "next"
        self.transition_weight, self.transition_events = config.transition_weight, config.transition_events
        self.transitions: Transitions | None = None  # counted from the events, and so no part of what is saved
        self._tables = tables
        first = first_item_vectors(config, num_items + 2, seed)
        self.item_vectors = nn.Parameter(first) if tables is None else None
        if tables is not None:
            self.set_item_vectors(first)

    def set_item_vectors(self, vectors: Tensor) -> None:
        """(V + 2, D) → what this process holds of them."""
        if self.item_vectors is not None:
            self.item_vectors.data.copy_(vectors)
        for piece in self._tables.pieces() if self._tables else ():
            if piece.what == "weights":
                below = vectors[piece.first_row :, piece.first_column :]
                piece.values.copy_(below[: piece.num_rows, : piece.num_columns])

    def look_up(self, ids: Tensor) -> Tensor:
        """(N) → (N, D)."""
        if self.item_vectors is not None:
            return nn.functional.embedding(ids, self.item_vectors)
        assert self._tables is not None
        return self._tables.look_up(ids.numpy().reshape(-1, 1)).squeeze(1)

    def output_weights(self) -> Tensor:
        """(V, D): what scores are made with."""
        if self.layers.output_weights is not None:
            own: Tensor = self.layers.output_weights
            return own
        if self.item_vectors is not None:
            return self.item_vectors[1 : self.num_items + 1]
        assert self._tables is not None
        return self._tables.all_rows()[1 : self.num_items + 1]

    def encode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Histories, one behind the other, → (B, D): what the next item's vector is multiplied with."""
        shown, shown_lengths = self._shorten(ids, lengths)
        packing = pack(shown_lengths)
        return self.hidden_at(self.look_up(torch.from_numpy(shown)), packing, packing.last.numpy())

    def hidden_at(self, emb_ND: Tensor, packing: Packing, places: NDArray[np.int64]) -> Tensor:
        """(N, D) → (M, D) of these places, to be multiplied with the vectors of the items to predict there."""
        is_everywhere = len(places) == len(emb_ND)
        hidden_MD: Tensor = self.layers(emb_ND, packing, None if is_everywhere else places)
        return hidden_MD

    def score(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """Histories, one behind the other, → scores (B, V) of items 1 … V."""
        scores = self.score_by_network(ids, lengths)
        if self.transition_weight:
            assert self.transitions is not None
            newest = newest_items(ids, lengths, self.transition_events)
            self.transitions.add_evidence(newest, self.transition_weight, scores)
        return scores

    def score_by_network(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """The same without what transitions add."""
        self.eval()
        with torch.inference_mode():
            hidden_BD, weights_VD, bias_V = self.encode(ids, lengths), self.output_weights(), self.layers.output_bias
            scores = hidden_BD @ weights_VD.T if bias_V is None else torch.addmm(bias_V, hidden_BD, weights_VD.T)
            out: NDArray[np.float32] = scores.numpy()
            return out

    @property
    def network(self) -> "Network":
        """The scorer without what transitions add."""
        return Network(self)

    def _shorten(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The newest events, as many as the model sees, behind them the hidden one if it is bidirectional."""
        num_known = self.max_length if self.is_causal else self.max_length - 1
        stops = np.cumsum(lengths)
        kept = np.minimum(lengths, num_known)
        widths = kept if self.is_causal else kept + 1
        starts = np.cumsum(widths) - widths
        shown = np.full(int(widths.sum()), self.num_items + 1, np.int64)
        within = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
        shown[np.repeat(starts, kept) + within] = ids[np.repeat(stops - kept, kept) + within]
        return shown, widths


class Network(NamedTuple):
    """A ranker's network alone."""

    ranker: Ranker

    def score(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """Histories, one behind the other, → scores (B, V) of items 1 … V."""
        return self.ranker.score_by_network(ids, lengths)
