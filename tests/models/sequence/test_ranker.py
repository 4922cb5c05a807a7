"""Sequence models with their item vectors."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.errors import ConfigError
from recmill.models.parts.attention import pack
from recmill.models.parts.dropout import train_at
from recmill.models.parts.losses import Sampled
from recmill.models.sequence.losses import FullLoss, LossBatch, sampled_loss
from recmill.models.sequence.ranker import Ranker
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.sequence_models import Bert4RecConfig, SasRecConfig, SequenceModelSettings, resolve_sequence_model
from recmill.settings.sequences import SequenceLoss

NUM_ITEMS, MAX_LENGTH = 20, 6
CONFIGS: dict[str, SequenceModelSettings] = {
    "sasrec": SasRecConfig(embedding_dim=8, dropout=0.0, item_std=0.3),
    "bert4rec": Bert4RecConfig(embedding_dim=8, dropout=0.0, item_std=0.3),
    "own": Bert4RecConfig(embedding_dim=8, dropout=0.0, output="own", head=False, norm="pre", item_std=0.3),
}
IDS = np.array([3, 4, 5, 9, 1, 2, 7, 7, 8, 20])
LENGTHS = np.array([3, 1, 6])
TARGETS = np.array([0, 5, 0, 4, 0, 0, 9, 0, 20, 1])


def full_loss(ranker: Ranker, batch: LossBatch, smoothing: float = 0.0) -> torch.Tensor:
    return FullLoss(SequenceLoss(label_smoothing=smoothing), np.ones(NUM_ITEMS, np.int64), 0)(ranker, batch, 0)


def build(name: str, tables: LocalTables | None = None) -> Ranker:
    return Ranker(CONFIGS[name], NUM_ITEMS, MAX_LENGTH, tables, seed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_full_loss_is_that_of_all_logits(name: str) -> None:
    ranker = build(name)
    hidden = ranker.layers(ranker.look_up(torch.from_numpy(IDS)), pack(LENGTHS))
    bias = ranker.layers.output_bias
    logits = hidden @ ranker.output_weights().T + (0 if bias is None else bias)
    labels = torch.from_numpy(np.where(TARGETS > 0, TARGETS - 1, -100))
    expected = nn.functional.cross_entropy(logits, labels)
    actual = full_loss(ranker, LossBatch(IDS, TARGETS, LENGTHS))
    torch.testing.assert_close(actual, expected)
    parameters = [p for p in ranker.parameters() if p.requires_grad]
    for ours, theirs in zip(
        torch.autograd.grad(actual, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_sampling_every_item_once_is_the_full_loss(name: str) -> None:
    ranker = build(name)
    everything = Sampled(torch.arange(1, NUM_ITEMS + 1), torch.zeros(NUM_ITEMS))
    batch = LossBatch(IDS, TARGETS, LENGTHS)
    sampled, full = sampled_loss(ranker, batch, everything), full_loss(ranker, batch)
    torch.testing.assert_close(sampled, full)
    parameters = list(ranker.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(sampled, parameters), torch.autograd.grad(full, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["full", "sampled"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_shares_of_processes_add_up_to_the_whole(name: str, kind: str) -> None:
    """Losses and gradients, with dropout; the last process has no sequence at all."""
    config = CONFIGS[name].with_({"dropout": 0.3, "attention_dropout": 0.3})
    ranker = Ranker(config, NUM_ITEMS, MAX_LENGTH, None, seed=1)  # type: ignore[arg-type]
    train_at(ranker, 2)
    sampled = Sampled(torch.tensor([2, 11, 12]), torch.zeros(3))

    def loss_of(rows: NDArray[np.int64] | None) -> torch.Tensor:
        chosen = np.arange(3) if rows is None else rows
        events = np.isin(np.repeat(np.arange(3), LENGTHS), chosen)
        share = () if rows is None else (rows, float(np.count_nonzero(TARGETS)))
        batch = LossBatch(IDS[events], TARGETS[events], LENGTHS[chosen], *share)
        return full_loss(ranker, batch, 0.1) if kind == "full" else sampled_loss(ranker, batch, sampled)

    expected = loss_of(None)
    actual = torch.stack([loss_of(rows) for rows in (np.array([0, 2]), np.array([1]), np.empty(0, np.int64))]).sum()
    torch.testing.assert_close(actual, expected)
    for ours, theirs in zip(
        torch.autograd.grad(actual, list(ranker.parameters())),
        torch.autograd.grad(expected, list(ranker.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_item_vectors_of_the_engine_move_as_weights_do(name: str) -> None:
    """One step of SGD: the engine's rows against a weight's, and only those that the batch touched."""
    tables = LocalTables([TableSpec("item", NUM_ITEMS + 2)], 8, TableOptimizer(kind="sgd", lr=0.5), seed=1)
    engine, weight = build(name, tables), build(name)
    before = tables.weights("item").copy()
    assert weight.item_vectors is not None
    np.testing.assert_array_equal(before, weight.item_vectors.detach().numpy())
    sampled = Sampled(torch.tensor([2, 11, 12]), torch.zeros(3))
    losses = [sampled_loss(ranker, LossBatch(IDS, TARGETS, LENGTHS), sampled) for ranker in (engine, weight)]
    torch.testing.assert_close(losses[0], losses[1])
    for loss in losses:
        loss.backward()  # type: ignore[no-untyped-call]
    assert weight.item_vectors.grad is not None
    expected = before - 0.5 * weight.item_vectors.grad.numpy()
    np.testing.assert_allclose(tables.weights("item"), expected, rtol=1e-5, atol=1e-6)
    touched = set(IDS.tolist()) | (set() if name == "own" else {*TARGETS[TARGETS > 0].tolist(), 2, 11, 12})
    moved = np.flatnonzero((tables.weights("item") != before).any(axis=1))
    assert set(moved.tolist()) == touched


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_are_of_the_newest_events(name: str) -> None:
    ranker = build(name)
    histories = [[1, 2, 3], [5], list(range(1, 12))]
    ids = np.concatenate([np.array(h) for h in histories])
    scores = ranker.score(ids, np.array([len(h) for h in histories]))
    assert scores.shape == (3, NUM_ITEMS)
    num_seen = MAX_LENGTH if name == "sasrec" else MAX_LENGTH - 1
    for row, history in zip(scores, histories, strict=True):
        alone = ranker.score(np.array(history[-num_seen:]), np.array([len(history[-num_seen:])]))
        np.testing.assert_allclose(row, alone[0], rtol=1e-4, atol=1e-5)
    older = ranker.score(np.array([19, *range(2, 12)]), np.array([11]))
    np.testing.assert_allclose(older[0], scores[2], rtol=1e-4, atol=1e-5)


def test_a_causal_model_does_not_look_ahead_and_the_other_does() -> None:
    changed = IDS.copy()
    changed[9] = 1  # the newest event of the last sequence
    for name in CONFIGS:
        ranker = build(name)
        one, other = (ranker.layers(ranker.look_up(torch.from_numpy(ids)), pack(LENGTHS)) for ids in (IDS, changed))
        earlier = torch.allclose(one[4:9], other[4:9], atol=1e-6)
        assert earlier == (name == "sasrec")
        assert torch.allclose(one[:4], other[:4], atol=1e-6), "another sequence"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"kind": "bert"}, "model.kind = 'bert' is not a sequence model; choose from bert4rec, sasrec"),
        ({"kind": "sasrec", "head": True}, r"model.head = true is not a setting.*\(model.kind is sasrec\)"),
        ({"kind": "sasrec", "num_heads": 3}, "model.num_heads = 3 does not divide model.embedding_dim = 64"),
        ("sasrec", "model.kind = 'sasrec' is not a sequence model"),
    ],
)
def test_settings_that_make_no_model(given: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        resolve_sequence_model(given)
