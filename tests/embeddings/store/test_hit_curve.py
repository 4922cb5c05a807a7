import numpy as np
import pytest

from recmill.embeddings.store import hit_curve
from recmill.embeddings.store.hit_curve import SHARES, HitCurve
from recmill.embeddings.store.residency import Numbering

NUMBERING = Numbering(np.array([0, 3000, 4000]), np.array([0, 1, 2]), np.array([0, 1]))


def batches(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    order = rng.permutation(3000), rng.permutation(1000)
    drawn = (np.minimum(rng.zipf(1.2, (2, 50)), 10**6) for _ in range(count))
    return [np.stack([order[t][uses[t] % len(order[t])] for t in (0, 1)], 1).astype(np.int64) for uses in drawn]


def plain_lru(all_ids: list[np.ndarray], slots: int) -> float:
    """The share of uses, without first ones, that a plain cache has, its rows in the order of their last uses."""
    cache, seen, hits, uses = list[int](), set[int](), 0, 0
    for ids in all_ids:
        used = dict.fromkeys(int(row) for line in ids for row in (line[0], 3000 + line[1]))
        for row in used:
            if row in seen:
                uses += 1
                hits += row in cache[-slots:]
            if row in cache:
                cache.remove(row)
            cache.append(row)
            seen.add(row)
    return hits / uses


def test_without_sampling_it_is_what_a_plain_cache_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hit_curve, "_TIMES", 4500)  # the numbers begin again a few times
    all_ids, curve = batches(0, 120), HitCurve(4000)
    for number, ids in enumerate(all_ids):
        curve.note(ids, NUMBERING, number)
    found = curve.hit_rates()
    for share in SHARES:
        assert found[f"{share:.0%}"] == pytest.approx(plain_lru(all_ids, round(share * 4001)), abs=1e-4)


def test_a_sample_tells_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    all_ids, whole = batches(1, 400), HitCurve(4000)
    monkeypatch.setattr(hit_curve, "_MOST_SAMPLED", 600)
    sampled = HitCurve(4000)
    for number, ids in enumerate(all_ids):
        whole.note(ids, NUMBERING, number)
        sampled.note(ids, NUMBERING, number)
    for share, rate in whole.hit_rates().items():
        assert sampled.hit_rates()[share] == pytest.approx(rate, abs=0.1), share
    rates = list(whole.hit_rates().values())
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]
