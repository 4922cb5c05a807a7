"""Ranks, lists and metrics against the obvious way to work them out."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.errors import ConfigError
from recmill.ranking import Known, RankEvaluator, RankTally, is_at_ten, take_top
from recmill.settings.protocol import Protocol

NUM_USERS, NUM_ITEMS = 30, 25
COUNTS = np.arange(1, NUM_ITEMS + 1)


def make_block(seed: int, *, coarse: bool) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((NUM_USERS, NUM_ITEMS)).astype(np.float32)
    if coarse:
        scores = np.round(scores)
    targets = rng.integers(1, NUM_ITEMS + 1, NUM_USERS)
    targets[::7] = -1
    known = [rng.integers(1, NUM_ITEMS + 1, rng.integers(1, 9)).tolist() for _ in range(NUM_USERS)]
    return scores, targets, known


def pack(known: list[list[int]]) -> Known:
    return Known(np.concatenate([np.array(k) for k in known]), np.cumsum([0, *map(len, known)]))


def naive(scores: np.ndarray, targets: np.ndarray, known: list[list[int]], protocol: Protocol) -> dict[str, float]:
    """Sort, look up, average."""
    sums: defaultdict[str, float] = defaultdict(float)
    listed: dict[int, set[int]] = {cutoff: set() for cutoff in protocol.cutoffs}
    for row, target, seen in zip(scores, targets, known, strict=True):
        hidden = set(seen) if protocol.filter_seen else set()
        ranked = sorted(
            (i for i in range(1, NUM_ITEMS + 1) if i not in hidden), key=lambda i: (-row[i - 1], i == target, i)
        )
        by_score = sorted((i for i in range(1, NUM_ITEMS + 1) if i not in hidden), key=lambda i: (-row[i - 1], i))
        rank = ranked.index(target) + 1 if target in ranked else math.inf
        for cutoff in protocol.cutoffs:
            listed[cutoff] |= set(by_score[:cutoff])
            if rank <= cutoff:
                sums[f"hr@{cutoff}"] += 1
                sums[f"ndcg@{cutoff}"] += 1 / math.log2(rank + 1)
                sums[f"mrr@{cutoff}"] += 1 / rank
    metrics = {
        f"{name}@{cutoff}": sums[f"{name}@{cutoff}"] / len(scores)
        for cutoff in protocol.cutoffs
        for name in ("hr", "ndcg", "mrr")
    }
    return metrics | {f"coverage@{cutoff}": len(items) / NUM_ITEMS for cutoff, items in listed.items()}


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("filter_seen", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_full_ranking_is_what_sorting_gives(seed: int, filter_seen: bool, coarse: bool) -> None:
    protocol = Protocol(filter_seen=filter_seen, cutoffs=(1, 5, 10))
    scores, targets, known = make_block(seed, coarse=coarse)
    expected = naive(scores, targets, known, protocol)
    judge = RankEvaluator(protocol, COUNTS)
    judge.take(np.arange(NUM_USERS), scores.copy(), targets, pack(known))
    actual = judge.tally.metrics(protocol)
    assert {name + protocol.suffix: value for name, value in expected.items()} == pytest.approx(actual)
    assert judge.tally.num_unknown == len(targets[::7])
    known_targets = sum(target in seen_by for target, seen_by in zip(targets, known, strict=True))
    assert judge.tally.num_removed == (known_targets if filter_seen else 0)


@settings(max_examples=100, deadline=None)
@given(
    scores=st.lists(
        st.one_of(st.floats(-3, 3, width=32), st.just(-math.inf), st.integers(0, 3).map(float)),
        min_size=1,
        max_size=200,
    ),
    length=st.integers(1, 12),
)
def test_lists_are_the_stable_sort(scores: list[float], length: int) -> None:
    array = np.array([scores], np.float32)
    out = np.empty((1, length), np.int64)
    take_top(array, out)
    expected = [i for i in np.argsort(-array[0], kind="stable") if array[0, i] > -math.inf][:length]
    assert out[0].tolist() == [*expected, *[-1] * (length - len(expected))]


def test_constant_scores_earn_nothing() -> None:
    judge = RankEvaluator(Protocol(), COUNTS)
    _, targets, known = make_block(0, coarse=False)
    judge.take(
        np.arange(NUM_USERS),
        np.zeros((NUM_USERS, NUM_ITEMS), np.float32),
        targets,
        pack(known),
    )
    assert judge.tally.metrics(judge.protocol)["hr@10"] == 0


def test_a_score_that_is_no_number_is_the_last() -> None:
    judge = RankEvaluator(Protocol(), COUNTS)
    scores = np.zeros((1, NUM_ITEMS), np.float32)
    scores[0, 3] = np.nan
    judge.take(np.array([0]), scores, np.array([4]), pack([[1]]))
    assert judge.tally.num_at_rank[1:].sum() == 0


@pytest.mark.parametrize("candidates", ["uniform", "popularity"])
def test_drawn_candidates_are_different_unknown_and_the_same_again(candidates: str) -> None:
    protocol = Protocol(candidates=candidates, num_negatives=10, seed=4)
    _, targets, known = make_block(0, coarse=False)
    users = np.arange(NUM_USERS)
    drawn = RankEvaluator(protocol, COUNTS)._draw(users, targets, pack(known))
    for row, target, seen in zip(drawn, targets, known, strict=True):
        assert len(set(row.tolist())) == 10
        assert not set(row.tolist()) & {int(target), *seen}
    one = RankEvaluator(protocol, COUNTS)._draw(users[5:6], targets[5:6], pack(known[5:6]))
    np.testing.assert_array_equal(one, drawn[5:6])
    other = RankEvaluator(protocol.with_({"seed": 5}), COUNTS)._draw(users, targets, pack(known))
    assert not np.array_equal(other, drawn)


def test_draws_follow_popularity_or_do_not() -> None:
    users, targets = np.arange(4000), np.full(4000, 1)
    known = pack([[2]] * 4000)
    for candidates, weights in (("uniform", np.ones(NUM_ITEMS)), ("popularity", COUNTS)):
        protocol = Protocol(candidates=candidates, num_negatives=1)
        drawn = RankEvaluator(protocol, COUNTS)._draw(users, targets, known)
        counts = np.bincount(drawn.ravel(), minlength=NUM_ITEMS + 1)
        expected = np.where(np.arange(1, NUM_ITEMS + 1) > 2, weights, 0)
        np.testing.assert_allclose(counts[1:] / 4000, expected / expected.sum(), atol=0.012)


def test_ranks_among_drawn_candidates_and_their_names() -> None:
    protocol = Protocol(candidates="uniform", num_negatives=10)
    scores, targets, known = make_block(2, coarse=True)
    judge = RankEvaluator(protocol, COUNTS)
    drawn = judge._draw(np.arange(NUM_USERS), targets, pack(known))
    judge.take(np.arange(NUM_USERS), scores.copy(), targets, pack(known))
    ranks = [
        1 + sum(row[item - 1] >= row[target - 1] for item in items) if target > 0 else math.inf
        for row, target, items in zip(scores, targets, drawn, strict=True)
    ]
    metrics = judge.tally.metrics(protocol)
    assert metrics["hr@5_of_10_uniform"] == sum(rank <= 5 for rank in ranks) / NUM_USERS
    full = RankEvaluator(Protocol(), COUNTS).tally.metrics(Protocol())
    kept = RankEvaluator(Protocol(filter_seen=False), COUNTS).tally.metrics(Protocol(filter_seen=False))
    assert not metrics.keys() & full.keys()
    assert not kept.keys() & full.keys()


@pytest.mark.parametrize("num_parts", [1, 2, 5])
def test_parts_add_up_to_the_whole_bit_for_bit(num_parts: int) -> None:
    protocol = Protocol()
    scores, targets, known = make_block(3, coarse=False)
    whole = RankEvaluator(protocol, COUNTS)
    whole.take(np.arange(NUM_USERS), scores.copy(), targets, pack(known))
    total = RankTally.empty(max(protocol.cutoffs), NUM_ITEMS)
    for rank in range(num_parts):
        part = RankEvaluator(protocol, COUNTS)
        part.take(
            np.arange(NUM_USERS)[rank::num_parts],
            scores[rank::num_parts].copy(),
            targets[rank::num_parts],
            pack(known[rank::num_parts]),
        )
        total.merge(part.tally)
    assert total.as_dict(protocol) == whole.tally.as_dict(protocol)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_negatives": 100}, "protocol.num_negatives = 100 does nothing for protocol.candidates = full"),
        ({"candidates": "uniform", "filter_seen": False}, "protocol.filter_seen = false does nothing"),
        ({"cutoffs": (5,)}, r"has no 10"),
        ({"cutoffs": (0, 10)}, "lists have 1 to 1000 items"),
    ],
)
def test_protocols_that_make_no_sense(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Protocol(**changes)


def test_nobody_has_no_score() -> None:
    nobody = RankTally.empty(10, NUM_ITEMS).as_dict(Protocol(cutoffs=(10,)))
    assert {nobody[f"{name}@10"] for name in ("hr", "ndcg", "mrr")} == {None}


def test_who_repeats_an_item_knows_it_once() -> None:
    judge = RankEvaluator(Protocol(candidates="uniform", num_negatives=20), COUNTS)
    block = (np.array([0]), np.zeros((1, NUM_ITEMS), np.float32), np.array([4]))
    judge.take(*block, pack([[1, 2, 3, 1] * 9]))
    with pytest.raises(ConfigError, match="the catalogue has 25 items and a user knows 5 of them"):
        judge.take(*block, pack([[1, 2, 3, 5, 6]]))


def test_lists_of_a_hundred_are_not_lists_of_ten() -> None:
    names = RankTally.empty(100, NUM_ITEMS).metrics(Protocol(cutoffs=(100, 10), filter_seen=False))
    assert [name for name in names if is_at_ten(name)] == [
        f"{name}@10_seen_kept" for name in ("hr", "ndcg", "mrr", "coverage")
    ]


def test_a_catalogue_too_small_to_draw_from_is_refused() -> None:
    judge = RankEvaluator(Protocol(candidates="uniform"), COUNTS)
    with pytest.raises(ConfigError, match="the catalogue has 25 items and a user knows 1 of them"):
        judge.take(np.array([0]), np.zeros((1, NUM_ITEMS), np.float32), np.array([4]), pack([[1]]))
