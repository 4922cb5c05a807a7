"""Losses of sequence models over what is to be predicted in a batch: one class for each kind, in one table."""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recmill.models.parts.attention import pack
from recmill.models.parts.losses import Sampled, full_softmax_loss, sampled_softmax_loss
from recmill.models.sequence.ranker import Ranker
from recmill.seeds import rng
from recmill.settings.sequences import SequenceLoss

# Legend: B sequences, N events of all of them, M events with something to predict, C sampled items, D dimension.

DEFAULT_SAMPLED = 2048
DEFAULT_POWER = 0.5


class LossBatch(NamedTuple):
    """The sequences of a batch, one behind the other; of several processes, those of one of them."""

    ids: NDArray[np.int64]  # (N)
    targets: NDArray[np.int64]  # (N) the item to predict at each event; 0 where there is none
    lengths: NDArray[np.int64]  # (B)
    rows: NDArray[np.int64] | None = None  # (B) the numbers of the sequences in the global batch; None: these are all
    mean_of: float | None = None  # by how much the sum of the losses is divided; None: by their number


class LossPart(Protocol):
    """The loss of a batch, to be minimised."""

    def __call__(self, ranker: Ranker, batch: LossBatch, step: int) -> Tensor:
        """The mean loss of all targets; `step` is the number of finished ones."""


class FullLoss:
    """Cross entropy among all items."""

    def __init__(self, config: SequenceLoss, _item_counts: NDArray[np.int64], _seed: int) -> None:
        self._smoothing = config.label_smoothing

    def __call__(self, ranker: Ranker, batch: LossBatch, step: int) -> Tensor:
        """The mean loss of all targets among all items."""
        del step
        places = np.flatnonzero(batch.targets)
        vectors_ND = ranker.look_up(torch.from_numpy(batch.ids))
        hidden_MD = ranker.hidden_at(vectors_ND, pack(batch.lengths, batch.rows), places)
        wanted = torch.from_numpy(batch.targets[places]) - 1
        weights, bias = ranker.output_weights(), ranker.layers.output_bias
        return full_softmax_loss(hidden_MD, wanted, weights, bias, smoothing=self._smoothing, mean_of=batch.mean_of)


class SampledLoss:
    """Cross entropy among the target and items drawn for each batch; which ones depends on seed and step alone."""

    def __init__(self, config: SequenceLoss, item_counts: NDArray[np.int64], seed: int) -> None:
        self._seed, self._number = seed, config.num_sampled or DEFAULT_SAMPLED
        power = 0.0 if config.sampling == "uniform" else config.sampling_power or DEFAULT_POWER
        weights = np.maximum(item_counts, 1).astype(np.float64) ** power
        self._log_expected = np.log(self._number * weights / weights.sum()).astype(np.float32)
        self._cumulative = np.cumsum(weights) / weights.sum()

    def draw(self, step: int) -> Sampled:
        """The items of the batch behind `step` finished ones; an item may come twice."""
        chances = rng(self._seed, "sampled", step).random(self._number)
        places = np.minimum(np.searchsorted(self._cumulative, chances, side="right"), len(self._cumulative) - 1)
        places.sort()  # neighbours in memory are looked up one after the other
        return Sampled(torch.from_numpy(places + 1), torch.from_numpy(self._log_expected[places]))

    def __call__(self, ranker: Ranker, batch: LossBatch, step: int) -> Tensor:
        """The mean loss of all targets among themselves and the drawn items."""
        return sampled_loss(ranker, batch, self.draw(step))


def sampled_loss(ranker: Ranker, batch: LossBatch, sampled: Sampled) -> Tensor:
    """The mean loss of all targets among themselves and given items."""
    places = np.flatnonzero(batch.targets)
    wanted = torch.from_numpy(batch.targets[places])
    own = ranker.layers.output_weights
    # one look-up for all, so that the engine sums what belongs to a row and moves it once
    wanted_ids = [torch.from_numpy(batch.ids)] + ([wanted, sampled.items] if own is None else [])
    vectors = torch.split(ranker.look_up(torch.cat(wanted_ids)), [len(each) for each in wanted_ids])
    wanted_MD, sampled_CD = (own[wanted - 1], own[sampled.items - 1]) if own is not None else vectors[1:]
    hidden_MD = ranker.hidden_at(vectors[0], pack(batch.lengths, batch.rows), places)
    bias = ranker.layers.output_bias
    if bias is not None:  # a score of its own is one more dimension, in which every sequence has a 1
        hidden_MD = torch.cat([hidden_MD, torch.ones_like(hidden_MD[:, :1])], dim=1)
        wanted_MD = torch.cat([wanted_MD, bias[wanted - 1, None]], dim=1)
        sampled_CD = torch.cat([sampled_CD, bias[sampled.items - 1, None]], dim=1)
    return sampled_softmax_loss(hidden_MD, wanted, wanted_MD, sampled, sampled_CD, mean_of=batch.mean_of)


LOSSES: dict[str, type[FullLoss] | type[SampledLoss]] = {"full": FullLoss, "sampled": SampledLoss}


def build_loss(config: SequenceLoss, item_counts: NDArray[np.int64], seed: int) -> LossPart:
    """The loss that the settings name."""
    return LOSSES[config.kind](config, item_counts, seed)
