"""The planted chains: the best possible is what the true chances give, and nothing beats it."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from recmill.data.synthetic.chains import EVENTS_FILE, plant_rules, write_chains
from recmill.errors import ConfigError
from recmill.settings.synthetic import ChainSpec


def read_users(out_dir: Path) -> dict[int, list[int]]:
    users: dict[int, list[int]] = {}
    with (out_dir / EVENTS_FILE).open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["time"]) for row in rows] == sorted(int(row["time"]) for row in rows)
    for row in rows:
        users.setdefault(int(row["user"]), []).append(int(row["item"]))
    return users


def chances_behind(history: list[int], rules: np.ndarray, noise: float) -> np.ndarray:
    """The chance of every item to be next, by Bayes' rule, written out."""
    num_items = rules.shape[1]

    def next_chances(rule: int, events: list[int]) -> np.ndarray:
        free = np.ones(num_items)
        free[events] = 0
        evenly = free / free.sum()
        wanted = rules[rule, events[-1]]
        if free[wanted]:
            evenly = noise * evenly
            evenly[wanted] += 1 - noise
        return np.asarray(evenly)

    beliefs = np.ones(len(rules))
    for i in range(1, len(history)):
        beliefs *= [next_chances(rule, history[:i])[history[i]] for rule in range(len(rules))]
        beliefs /= beliefs.sum()
    return np.asarray(sum(belief * next_chances(rule, history) for rule, belief in enumerate(beliefs)))


@pytest.mark.parametrize("num_rules", [1, 3])
def test_the_best_possible_is_that_of_the_true_chances(num_rules: int, tmp_path: Path) -> None:
    spec = ChainSpec(users=60, items=40, seed=5, min_length=4, max_length=12, noise=0.3, rules=num_rules)
    world = write_chains(spec, tmp_path / "world")
    rules, users = plant_rules(spec), read_users(tmp_path / "world")
    for behind, best in ((2, world.validation), (1, world.test)):
        chances = [np.sort(chances_behind(u[:-behind], rules, spec.noise))[::-1][:10] for u in users.values()]
        assert best.hr == pytest.approx(np.mean([c.sum() for c in chances]))
        assert best.ndcg == pytest.approx(np.mean([c @ (1 / np.log2(np.arange(10) + 2)) for c in chances]))
    told = json.loads((tmp_path / "world" / "world.json").read_text())
    assert told["best_possible"]["test"]["ndcg@10"] == world.test.ndcg


def test_nobody_meets_an_item_twice_and_chains_are_followed(tmp_path: Path) -> None:
    spec = ChainSpec(users=300, items=200, seed=1, noise=0.25, rules=1)
    write_chains(spec, tmp_path / "world")
    (rule,) = plant_rules(spec)
    assert sorted(rule.tolist()) == list(range(200))
    users = read_users(tmp_path / "world")
    assert len(users) == 300
    followed = [rule[a] == b for events in users.values() for a, b in pairwise(events)]
    assert all(len(set(events)) == len(events) for events in users.values())
    assert np.mean(followed) == pytest.approx(0.75, abs=0.03)
    assert {len(events) for events in users.values()} == set(range(10, 31))


def test_the_same_spec_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_chains(ChainSpec(users=50, items=100, seed=3), tmp_path / name)
    assert (tmp_path / "one" / EVENTS_FILE).read_bytes() == (tmp_path / "two" / EVENTS_FILE).read_bytes()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"users": 0}, "users = 0 is rejected"),
        ({"items": 30}, "items = 30 is rejected"),
        ({"noise": 1.0}, r"noise = 1.0 is rejected"),
        ({"min_length": 2}, "a user has at least 3 events"),
        ({"rules": 11}, "rules = 11 is rejected"),
        ({"seed": -1}, "seed = -1 is rejected"),
    ],
)
def test_worlds_that_cannot_be(changes: dict[str, float], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ChainSpec(**{"users": 10, "items": 100, **changes})
