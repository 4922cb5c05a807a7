"""Attention blocks over packed sequences: every linear layer sees events only, and padding exists nowhere else.

Sequences of recommendation data are short, a few of them long. Within the attention, rows of similar length are taken
together and filled up to the longest of them, so that a batch costs what its events cost and not B times its longest.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.models.dropout import Dropout
from recmill.models.mlp import layer_stream

# Legend: B sequences, N events of all of them, L length, D dimension, H heads, G sequences of a group.
# For dropout an event is called by its sequence and how many follow it, as 64 bits: sequence · head · events behind.

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "relu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}
_GROUP_LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MIN_GROUP_EVENTS = 1024  # a group with less to do costs more calls than it saves padding


class Group(NamedTuple):
    """Sequences of similar length, filled up in front to the longest of them."""

    is_event: Tensor  # (G, L)
    flat_places: Tensor  # of the events in (G·L)
    events: Tensor  # the same events among the packed ones
    rows: NDArray[np.uint64]  # (G) the numbers of the sequences


class Packing(NamedTuple):
    """How the packed events of a batch form sequences."""

    groups: tuple[Group, ...]
    back: Tensor  # (N) where each event stands among those of all groups, one behind the other
    from_end: Tensor  # (N) how many events of the same sequence follow
    last: Tensor  # (B) the place of each sequence's newest event
    names: NDArray[np.uint64]  # (N) what each event is called


def pack(lengths: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Packing:
    """The packing of sequences of these lengths, which lie end to end; each has at least one event.

    `rows` are their numbers in a batch of which these may be a part.
    """
    numbers = np.arange(len(lengths)).astype(np.uint64) if rows is None else rows.astype(np.uint64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    num_events = int(offsets[-1])
    rows_of_events = np.repeat(np.arange(len(lengths)), lengths)
    from_end = offsets[rows_of_events + 1] - 1 - np.arange(num_events)
    groups = tuple(_group(offsets[:-1][chosen], lengths[chosen], numbers[chosen]) for chosen in _cut_by_length(lengths))
    back = torch.empty(num_events, dtype=torch.int64)
    back[torch.cat([group.events for group in groups])] = torch.arange(num_events)
    names = _name_events(numbers[rows_of_events], np.zeros(1, np.uint64), from_end)
    return Packing(groups, back, torch.from_numpy(from_end), torch.from_numpy(offsets[1:] - 1), names)


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


def _group(starts: NDArray[np.int64], lengths: NDArray[np.int64], rows: NDArray[np.uint64]) -> Group:
    longest = int(lengths.max(initial=1))
    missing = (longest - lengths)[:, None]
    is_event = np.arange(longest) >= missing
    flat_places = np.flatnonzero(is_event)
    events = (starts[:, None] + np.arange(longest) - missing).reshape(-1)[flat_places]
    return Group(torch.from_numpy(is_event), torch.from_numpy(flat_places), torch.from_numpy(events), rows)


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


class SelfAttention(nn.Module):
    """Multi-head attention within each sequence, to all its events or, if causal, to those not behind."""

    def __init__(self, style: BlockStyle, *name: str | int) -> None:
        super().__init__()
        self._heads, self._is_causal = style.num_heads, style.is_causal
        self.qkv = seeded_linear(style.dim, 3 * style.dim, style, *name, "qkv")
        self.out = seeded_linear(style.dim, style.dim, style, *name, "out")
        self.dropout = Dropout(style.attention_dropout_frac, style.seed, *name, "attention")

    def forward(self, inputs_ND: Tensor, packing: Packing) -> Tensor:
        """(N, D) → (N, D)."""
        qkv = self.qkv(inputs_ND)
        pieces = [self._attend(qkv, group) for group in packing.groups]
        mixed: Tensor = self.out(torch.cat(pieces)[packing.back])
        return mixed

    def _attend(self, qkv: Tensor, group: Group) -> Tensor:
        """The mixed values of a group's events, in the order of `group.events`."""
        G, L = group.is_event.shape
        dim = qkv.shape[1] // 3
        padded = torch.zeros(G * L, 3 * dim, dtype=qkv.dtype).index_copy(0, group.flat_places, qkv[group.events])
        queries, keys, values = padded.view(G, L, 3, self._heads, dim // self._heads).permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(2, 3) * (dim // self._heads) ** -0.5
        hidden = ~group.is_event[:, None, None, :]
        if self._is_causal:
            hidden = hidden | torch.ones(L, L, dtype=torch.bool).triu(1)
        # a place that is no event may look at nothing; what comes out there is dropped, but must not be NaN
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=3)
        if self.training and self.dropout.frac:
            heads, from_end = np.arange(self._heads, dtype=np.uint64), np.arange(L)[::-1]
            names = _name_events(group.rows[:, None, None], heads[:, None], from_end)
            weights = self.dropout(weights, names.ravel())
        mixed = (weights @ values).transpose(1, 2).reshape(G * L, dim)
        out: Tensor = mixed[group.flat_places]
        return out


class Block(nn.Module):
    """Attention, then two linear layers, each added to what came in; normed before (pre) or behind the sum (post)."""

    def __init__(self, style: BlockStyle, number: int) -> None:
        super().__init__()
        self._is_pre = style.norm == "pre"
        self.attention = SelfAttention(style, "block", number)
        self.attention_norm = nn.LayerNorm(style.dim, eps=1e-8 if style.is_causal else 1e-12)
        self.widen = seeded_linear(style.dim, style.hidden_dim, style, "block", number, "widen")
        self.activation = ACTIVATIONS[style.activation]()
        self.narrow = seeded_linear(style.hidden_dim, style.dim, style, "block", number, "narrow")
        self.hidden_norm = nn.LayerNorm(style.dim, eps=1e-8 if style.is_causal else 1e-12)
        self.dropouts = nn.ModuleList(Dropout(style.dropout_frac, style.seed, "block", number, i) for i in range(2))

    def forward(self, inputs_ND: Tensor, packing: Packing) -> Tensor:
        """(N, D) → (N, D)."""
        names = packing.names
        if self._is_pre:
            inputs_ND = inputs_ND + self.dropouts[0](self.attention(self.attention_norm(inputs_ND), packing), names)
            return inputs_ND + self.dropouts[1](self._transform(self.hidden_norm(inputs_ND)), names)  # type: ignore[no-any-return]
        inputs_ND = self.attention_norm(inputs_ND + self.dropouts[0](self.attention(inputs_ND, packing), names))
        return self.hidden_norm(inputs_ND + self.dropouts[1](self._transform(inputs_ND), names))  # type: ignore[no-any-return]

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


def run_blocks(blocks: Sequence[nn.Module] | nn.ModuleList, hidden_ND: Tensor, packing: Packing) -> Tensor:
    """(N, D) through all blocks."""
    for block in blocks:
        hidden_ND = block(hidden_ND, packing)
    return hidden_ND
