"""Attention blocks over packed sequences: every linear layer sees events only, and padding exists nowhere else.

Sequences of recommendation data are short, a few of them long. Within the attention, rows of similar length are taken
together and filled up to the longest of them, so that a batch costs what its events cost and not B times its longest.
Where only some events have something to guess, the last block works out these alone: a fifth of them with BERT4Rec.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.models.parts.dropout import Dropout
from recmill.models.parts.mlp import layer_stream
from recmill.settings.sequence_models import Activation, Norm

# Legend: B sequences, N events of all of them, M of them that are asked, L length, D dimension, H heads,
# G sequences of a group, S slots for the asked events of each, E = 2·D a key and a value.
# For dropout an event is called by its sequence and how many follow it, as 64 bits: sequence · head · events behind.

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}
_GROUP_LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_NEVER = float(np.finfo(np.float32).min)  # as a score; a place that may look at nothing must not become NaN
_MIN_GROUP_EVENTS = 1024  # a group with less to do costs more calls than it saves padding


class Asked(NamedTuple):
    """The events of a group that look at the others, sequence by sequence; slots that are left over come last."""

    num_slots: int  # S, of each sequence
    flat_slots: Tensor  # of the events in (G·S)
    events: Tensor  # the same events among all that are asked
    from_end: NDArray[np.int64]  # (G, S), or (1, S) if it is the same for all: how many events follow


class LengthGroup(NamedTuple):
    """Sequences of similar length, filled up in front to the longest of them."""

    padding: Tensor  # (G, L), what is added to scores: 0 for events, almost −inf for what is none
    flat_places: Tensor  # of the events in (G·L)
    events: Tensor  # the same events among the packed ones
    rows: NDArray[np.uint64]  # (G) the numbers of the sequences
    asked: Asked


class Packing(NamedTuple):
    """How the packed events of a batch form sequences, and which of them are asked: all, or some (`ask`)."""

    groups: tuple[LengthGroup, ...]
    back: Tensor  # (N) where each event stands among those of all groups, one behind the other; (M) of the asked
    from_end: Tensor  # (N) how many events of the same sequence follow
    last: Tensor  # (B) the place of each sequence's newest event
    names: NDArray[np.uint64]  # (N) what each event is called; (M) of the asked


def pack(lengths: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Packing:
    """The packing of sequences of these lengths, which lie end to end; each has at least one event.

    `rows` are their numbers in a batch of which these may be a part.
    """
    numbers = np.arange(len(lengths)).astype(np.uint64) if rows is None else rows.astype(np.uint64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows_of_events = np.repeat(np.arange(len(lengths)), lengths)
    from_end = offsets[rows_of_events + 1] - 1 - np.arange(offsets[-1])
    groups = tuple(_group(offsets[:-1][chosen], lengths[chosen], numbers[chosen]) for chosen in _cut_by_length(lengths))
    names = _name_events(numbers[rows_of_events], np.zeros(1, np.uint64), from_end)
    return Packing(groups, _way_back(groups), torch.from_numpy(from_end), torch.from_numpy(offsets[1:] - 1), names)


def ask(packing: Packing, places: NDArray[np.int64]) -> Packing:
    """The same sequences with some events asked, by rising places; the others are only looked at."""
    number_of = np.full(len(packing.names), -1)
    number_of[places] = np.arange(len(places))
    groups = tuple(group._replace(asked=_ask_group(group, number_of)) for group in packing.groups)
    return packing._replace(groups=groups, back=_way_back(groups), names=packing.names[places])


def _ask_group(group: LengthGroup, number_of: NDArray[np.int64]) -> Asked:
    num_sequences, longest = group.padding.shape
    numbers = number_of[group.events.numpy()]
    flat_places = group.flat_places.numpy()[numbers >= 0]
    rows, columns = np.divmod(flat_places, longest)
    counts = np.bincount(rows, minlength=num_sequences)
    num_slots = int(counts.max(initial=1))
    flat_slots = rows * num_slots + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    from_end = np.zeros((num_sequences, num_slots), np.int64)
    from_end.reshape(-1)[flat_slots] = longest - 1 - columns
    return Asked(num_slots, torch.from_numpy(flat_slots), torch.from_numpy(numbers[numbers >= 0]), from_end)


def _way_back(groups: Sequence[LengthGroup]) -> Tensor:
    events = torch.cat([group.asked.events for group in groups])
    back = torch.empty(len(events), dtype=torch.int64)
    back[events] = torch.arange(len(events))
    return back


def _name_events(
    rows: NDArray[np.uint64], heads: NDArray[np.uint64], from_end: NDArray[np.int64]
) -> NDArray[np.uint64]:
    return (rows << np.uint64(32)) + (heads << np.uint64(16)) + from_end.astype(np.uint64)


def _cut_by_length(lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Which sequences go together: those up to each length, unless they are too few to be worth a group."""
    order = np.argsort(lengths, kind="stable")
    ends = np.searchsorted(lengths[order], _GROUP_LENGTHS, side="right")
    groups, start = list[NDArray[np.int64]](), 0
    for end, length in zip(ends, _GROUP_LENGTHS, strict=True):
        if (end - start) * length >= _MIN_GROUP_EVENTS:
            groups.append(order[start:end])
            start = end
    if start < len(order) or not groups:  # of no sequences at all there is one group, which is empty
        groups.append(order[start:])
    return groups


def _group(starts: NDArray[np.int64], lengths: NDArray[np.int64], rows: NDArray[np.uint64]) -> LengthGroup:
    longest = int(lengths.max(initial=1))
    missing = (longest - lengths)[:, None]
    is_event = np.arange(longest) >= missing
    flat_places = torch.from_numpy(np.flatnonzero(is_event))
    events = torch.from_numpy((starts[:, None] + np.arange(longest) - missing)[is_event])
    padding = torch.from_numpy(np.where(is_event, np.float32(0), np.float32(_NEVER)))
    everything = Asked(longest, flat_places, events, np.arange(longest)[None, ::-1])
    return LengthGroup(padding, flat_places, events, rows, everything)


class BlockStyle(NamedTuple):
    """What all blocks of a model share."""

    dim: int
    num_heads: int
    hidden_dim: int
    activation: Activation
    norm: Norm
    is_causal: bool
    dropout_frac: float
    attention_dropout_frac: float
    init_std: float | None
    seed: int

    @property
    def norm_eps(self) -> float:
        """As published: SASRec's, or BERT's."""
        return 1e-8 if self.is_causal else 1e-12


class SelfAttention(nn.Module):
    """Multi-head attention within each sequence, to all its events or, if causal, to those not behind."""

    def __init__(self, style: BlockStyle, *name: str | int) -> None:
        super().__init__()
        self._heads, self._is_causal = style.num_heads, style.is_causal
        self.qkv = seeded_linear(style.dim, 3 * style.dim, style, *name, "qkv")
        self.out = seeded_linear(style.dim, style.dim, style, *name, "out")
        self.dropout = Dropout(style.attention_dropout_frac, style.seed, *name, "attention")

    def forward(self, inputs_ND: Tensor, packing: Packing, places_M: Tensor | None = None) -> Tensor:
        """(N, D) → (N, D), or (M, D) of the places that the packing asks."""
        dim = inputs_ND.shape[1]
        if places_M is None:
            queries_MD, pairs_NE = self.qkv(inputs_ND).tensor_split([dim], dim=1)
        else:
            weight, bias = self.qkv.weight, self.qkv.bias
            queries_MD = nn.functional.linear(inputs_ND.index_select(0, places_M), weight[:dim], bias[:dim])
            pairs_NE = nn.functional.linear(inputs_ND, weight[dim:], bias[dim:])
        pieces = [self._attend(queries_MD, pairs_NE, group) for group in packing.groups]
        mixed: Tensor = self.out(torch.cat(pieces).index_select(0, packing.back))
        return mixed

    def _attend(self, queries_MD: Tensor, pairs_NE: Tensor, group: LengthGroup) -> Tensor:
        """The mixed values of a group's asked events, in the order of `group.asked.events`."""
        (G, L), S, heads = group.padding.shape, group.asked.num_slots, self._heads
        dim = queries_MD.shape[1]
        slots = _spread(queries_MD, group.asked.events, group.asked.flat_slots, G * S)
        queries = slots.view(G, S, heads, dim // heads).transpose(1, 2)
        places = _spread(pairs_NE, group.events, group.flat_places, G * L)
        keys, values = places.view(G, L, 2, heads, dim // heads).permute(2, 0, 3, 1, 4)
        scores = queries * (dim // heads) ** -0.5 @ keys.transpose(2, 3)
        # in place and unknown to autograd: where it matters weights are 0, and so are the gradients of their scores
        scores.detach().add_(group.padding[:, None, None])
        if self._is_causal:
            is_later = torch.from_numpy(np.arange(L)[::-1] < group.asked.from_end[:, :, None])
            scores.detach().add_(torch.zeros(is_later.shape).masked_fill_(is_later, _NEVER)[:, None])
        weights = scores.softmax(dim=3)
        if self.training and self.dropout.frac:
            numbers = np.arange(heads, dtype=np.uint64)[:, None]
            names = _name_events(group.rows[:, None, None], numbers, group.asked.from_end[:, None])
            weights = self.dropout(weights, names.ravel())
        mixed: Tensor = (weights @ values).transpose(1, 2).reshape(G * S, dim)
        return mixed.index_select(0, group.asked.flat_slots)


def _spread(rows: Tensor, chosen: Tensor, places: Tensor, num_places: int) -> Tensor:
    """Some rows at places of their own, zeros elsewhere."""
    out = torch.zeros(num_places, rows.shape[1], dtype=rows.dtype)
    return out.index_copy(0, places, rows.index_select(0, chosen))


class AttentionBlock(nn.Module):
    """Attention, then two linear layers, each added to what came in; normed before (pre) or behind the sum (post)."""

    def __init__(self, style: BlockStyle, number: int) -> None:
        super().__init__()
        self._is_pre = style.norm == "pre"
        self.attention = SelfAttention(style, "block", number)
        self.attention_norm = nn.LayerNorm(style.dim, eps=style.norm_eps)
        self.widen = seeded_linear(style.dim, style.hidden_dim, style, "block", number, "widen")
        self.activation = ACTIVATIONS[style.activation]()
        self.narrow = seeded_linear(style.hidden_dim, style.dim, style, "block", number, "narrow")
        self.hidden_norm = nn.LayerNorm(style.dim, eps=style.norm_eps)
        self.dropouts = nn.ModuleList(Dropout(style.dropout_frac, style.seed, "block", number, i) for i in range(2))

    def forward(self, inputs_ND: Tensor, packing: Packing, places_M: Tensor | None = None) -> Tensor:
        """(N, D) → (N, D), or (M, D) of the places that the packing asks."""
        names = packing.names
        looking_ND = self.attention_norm(inputs_ND) if self._is_pre else inputs_ND
        sum_MD = inputs_ND if places_M is None else inputs_ND.index_select(0, places_M)
        sum_MD = sum_MD + self.dropouts[0](self.attention(looking_ND, packing, places_M), names)
        if self._is_pre:
            return sum_MD + self.dropouts[1](self._transform(self.hidden_norm(sum_MD)), names)  # type: ignore[no-any-return]
        sum_MD = self.attention_norm(sum_MD)
        return self.hidden_norm(sum_MD + self.dropouts[1](self._transform(sum_MD), names))  # type: ignore[no-any-return]

    def _transform(self, inputs_ND: Tensor) -> Tensor:
        transformed: Tensor = self.narrow(self.activation(self.widen(inputs_ND)))
        return transformed


def seeded_linear(in_width: int, width: int, style: BlockStyle, *name: str | int) -> nn.Linear:
    """A linear layer with first values N(0, init_std), or N(0, 1/√fan_in), and biases of 0, from a stream of its name.

    BERT's 0.02 suits vectors of 768 numbers. With 64 attention begins so faint that a model which looks both ways
    stays on a plateau: the planted chains were not learnt in 800 steps with 0.02 and in 300 with 1/√fan_in.
    """
    linear = nn.Linear(in_width, width)
    std = style.init_std or in_width**-0.5
    nn.init.normal_(linear.weight, 0.0, std, generator=layer_stream(style.seed, *name))
    nn.init.zeros_(linear.bias)
    return linear


def run_blocks(
    blocks: Sequence[nn.Module] | nn.ModuleList,
    hidden_ND: Tensor,
    packing: Packing,
    places: NDArray[np.int64] | None = None,
) -> Tensor:
    """(N, D) through all blocks, or (M, D) of some places, by rising numbers: all that the last one works out."""
    *first, last = blocks
    for block in first:
        hidden_ND = block(hidden_ND, packing)
    if places is None:
        return last(hidden_ND, packing)  # type: ignore[no-any-return]
    return last(hidden_ND, ask(packing, places), torch.from_numpy(places))  # type: ignore[no-any-return]
