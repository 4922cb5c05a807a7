"""Packed attention against padded attention, written out."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from recmill.models.parts import attention
from recmill.models.parts.attention import AttentionBlock, BlockStyle, SelfAttention, pack, run_blocks
from recmill.models.parts.dropout import train_at
from recmill.settings.sequence_models import Norm

LENGTHS = np.array([3, 1, 7, 2, 12, 7, 1, 4])


def style(**changes: object) -> BlockStyle:
    plain = BlockStyle(8, 2, 16, "gelu", "pre", False, 0.0, 0.0, 0.3, 0)
    return plain._replace(**changes)  # type: ignore[arg-type]


def by_sequence(layer: SelfAttention, inputs: Tensor, is_causal: bool) -> Tensor:
    """One sequence after the other, one head after the other."""
    outputs = []
    for piece in torch.tensor_split(inputs, np.cumsum(LENGTHS)[:-1].tolist()):
        queries, keys, values = (piece @ layer.qkv.weight.T + layer.qkv.bias).chunk(3, dim=1)
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = queries[:, head] @ keys[:, head].T / 2.0
            if is_causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
            heads.append(scores.softmax(dim=1) @ values[:, head])
        outputs.append(layer.out(torch.cat(heads, dim=1)))
    return torch.cat(outputs)


def assert_same_with_gradients(actual: Tensor, expected: Tensor, sources: list[Tensor]) -> None:
    torch.testing.assert_close(actual, expected)
    weights = torch.randn(actual.shape, generator=torch.Generator().manual_seed(2))
    ours, theirs = (torch.autograd.grad((each * weights).sum(), sources) for each in (actual, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("min_events", [1, 17, 10**6], ids=["many groups", "some groups", "one group"])
def test_attention_is_that_of_each_sequence_alone(
    is_causal: bool, min_events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_MIN_GROUP_EVENTS", min_events)
    layer = SelfAttention(style(is_causal=is_causal), "test")
    inputs = torch.randn(int(LENGTHS.sum()), 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    packing = pack(LENGTHS)
    assert len(packing.groups) == {1: 3, 17: 2, 10**6: 1}[min_events]
    actual, expected = layer(inputs, packing), by_sequence(layer, inputs, is_causal)
    assert_same_with_gradients(actual, expected, [inputs, *layer.parameters()])


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("min_events", [1, 10**6], ids=["many groups", "one group"])
def test_a_part_of_a_batch_has_the_dropout_of_the_whole(
    is_causal: bool, min_events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_MIN_GROUP_EVENTS", min_events)
    block = AttentionBlock(style(is_causal=is_causal, dropout_frac=0.3, attention_dropout_frac=0.4), 0)
    train_at(block, 5)
    inputs = torch.randn(int(LENGTHS.sum()), 8, generator=torch.Generator().manual_seed(1))
    whole = block(inputs, pack(LENGTHS))
    assert not torch.allclose(whole, block.eval()(inputs, pack(LENGTHS)))
    train_at(block, 5)
    for rows in (np.arange(0, 8, 2), np.arange(1, 8, 2), np.array([2])):
        events = np.isin(np.repeat(np.arange(8), LENGTHS), rows)
        part = block(inputs[events], pack(LENGTHS[rows], rows))
        torch.testing.assert_close(part, whole[events])


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("min_events", [1, 17, 10**6], ids=["many groups", "some groups", "one group"])
def test_places_that_are_asked_know_what_they_know_among_all(
    is_causal: bool, norm: Norm, min_events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and gradients, with dropout; of some sequences all events are asked, of some none."""
    monkeypatch.setattr(attention, "_MIN_GROUP_EVENTS", min_events)
    changes = {"is_causal": is_causal, "norm": norm, "dropout_frac": 0.3, "attention_dropout_frac": 0.4}
    blocks = nn.ModuleList(AttentionBlock(style(**changes), number) for number in range(2))
    train_at(blocks, 5)
    inputs = torch.randn(int(LENGTHS.sum()), 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    places = np.array([0, 2, 5, 10, *range(13, 25), 36])
    packing = pack(LENGTHS)
    actual, expected = run_blocks(blocks, inputs, packing, places), run_blocks(blocks, inputs, packing)[places]
    assert_same_with_gradients(actual, expected, [inputs, *blocks.parameters()])


def test_nothing_asked_gives_nothing_and_a_gradient_of_zeros() -> None:
    block, inputs = AttentionBlock(style(), 0), torch.randn(int(LENGTHS.sum()), 8)
    asked = run_blocks([block], inputs, pack(LENGTHS), np.empty(0, np.int64))
    assert asked.shape == (0, 8)
    asked.sum().backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in block.parameters())


def test_no_sequence_gives_no_event_and_a_gradient_of_zeros() -> None:
    block = AttentionBlock(style(dropout_frac=0.3, attention_dropout_frac=0.4), 0)
    train_at(block, 5)
    nothing = np.empty(0, np.int64)
    block(torch.empty(0, 8), pack(nothing)).sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in block.parameters())


def test_a_packing_knows_ends_and_newest() -> None:
    packing = pack(np.array([2, 3, 1]))
    assert packing.from_end.tolist() == [1, 0, 2, 1, 0, 0]
    assert packing.last.tolist() == [1, 4, 5]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_adds_and_norms_where_it_should(norm: Norm) -> None:
    block = AttentionBlock(style(norm=norm), 0)
    inputs, packing = torch.randn(int(LENGTHS.sum()), 8), pack(LENGTHS)

    def transform(x: Tensor) -> Tensor:
        return block.narrow(nn.functional.gelu(block.widen(x)))  # type: ignore[no-any-return]

    if norm == "pre":
        middle = inputs + block.attention(block.attention_norm(inputs), packing)
        expected = middle + transform(block.hidden_norm(middle))
    else:
        middle = block.attention_norm(inputs + block.attention(inputs, packing))
        expected = block.hidden_norm(middle + transform(middle))
    torch.testing.assert_close(block(inputs, packing), expected)


def test_first_values_depend_on_seed_and_name_alone() -> None:
    torch.manual_seed(3)
    first = AttentionBlock(style(), 1).state_dict()
    torch.manual_seed(4)
    again, other = AttentionBlock(style(), 1).state_dict(), AttentionBlock(style(), 2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["widen.weight"], other["widen.weight"])
