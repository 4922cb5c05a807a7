"""The click metrics equal scikit-learn's, however the rows arrive and however little memory there is."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from recmill.metrics import ClickMetrics, ClickResult
from recmill.seeds import rng

Floats = NDArray[np.float32]


def _rows(num_rows: int, name: str, *, num_levels: int | None = None) -> tuple[Floats, Floats]:
    """Logits that know something of their labels, optionally on a few levels only."""
    random = rng(0, "metrics", name)
    logits = random.normal(-1.0, 1.5, num_rows)
    labels = random.random(num_rows) < 1 / (1 + np.exp(-logits))
    if num_levels:
        logits = np.round(logits * num_levels / 8) / num_levels
    return logits.astype(np.float32), labels.astype(np.float32)


def _measure(logits: Floats, labels: Floats, memory_bytes: int = 1 << 20) -> ClickResult:
    metrics = ClickMetrics(memory_bytes)
    metrics.update(logits, labels)
    return metrics.result()


def _auroc_by_pairs(logits: Floats, labels: Floats) -> float:
    clicks, others = logits[labels == 1], logits[labels == 0]
    above = (clicks[:, None] > others[None]).mean(dtype=np.float64)
    return float(above + (clicks[:, None] == others[None]).mean(dtype=np.float64) / 2)


@pytest.mark.parametrize("num_levels", [None, 1, 2, 16])
def test_equals_scikit_learn(num_levels: int | None) -> None:
    logits, labels = _rows(20_000, "sklearn", num_levels=num_levels)
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    result = _measure(logits, labels)
    assert result.auroc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    assert result.logloss == pytest.approx(log_loss(labels, probabilities), rel=1e-12)
    assert result.accuracy == pytest.approx(accuracy_score(labels, logits > 0), rel=1e-15)
    assert result.calibration == pytest.approx(probabilities.mean() / labels.mean(dtype=np.float64), rel=1e-12)
    constant = np.full(len(labels), labels.mean(dtype=np.float64))
    assert result.normalised_entropy == pytest.approx(result.logloss / log_loss(labels, constant), rel=1e-12)
    assert (result.num_rows, result.num_clicks) == (20_000, int(labels.sum()))


scores = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45])
rows = st.lists(st.tuples(scores, st.booleans()), min_size=1, max_size=80)


@given(rows=rows, memory_bytes=st.integers(4, 256), cuts=st.lists(st.integers(0, 80), max_size=5))
def test_any_partition_in_any_memory_gives_the_same_auroc(
    rows: list[tuple[float, bool]], memory_bytes: int, cuts: list[int]
) -> None:
    logits = np.array([row[0] for row in rows], np.float32)
    labels = np.array([row[1] for row in rows], np.float32)
    parts = []
    for some_logits, some_labels in zip(np.split(logits, sorted(cuts)), np.split(labels, sorted(cuts)), strict=True):
        parts.append(ClickMetrics(memory_bytes))
        parts[-1].update(some_logits, some_labels)
    forwards, backwards = ClickMetrics(memory_bytes), ClickMetrics(1 << 12)
    for part, mirrored in zip(parts, reversed(parts), strict=True):
        forwards.merge(part)
        backwards.merge(mirrored)
    auroc = _measure(logits, labels).auroc
    assert forwards.result().auroc == backwards.result().auroc == auroc
    if 0 < labels.sum() < len(labels):
        assert auroc == pytest.approx(_auroc_by_pairs(logits, labels), abs=1e-12)
    else:
        assert auroc is None


@pytest.mark.parametrize("num_levels", [None, 1, 3])
def test_many_spills_change_nothing(num_levels: int | None) -> None:
    logits, labels = _rows(30_000, "spills", num_levels=num_levels)
    in_memory = _measure(logits, labels)
    spilled = _measure(logits, labels, memory_bytes=4_000)
    assert spilled.auroc == in_memory.auroc
    assert spilled.logloss == pytest.approx(in_memory.logloss, rel=1e-12)
    assert spilled.accuracy == in_memory.accuracy


def test_result_may_be_asked_for_between_updates() -> None:
    logits, labels = _rows(3_000, "between")
    metrics = ClickMetrics(memory_bytes=2_048)
    for start in range(0, 3_000, 500):
        metrics.update(logits[start : start + 500], labels[start : start + 500])
        assert metrics.result().auroc == _measure(logits[: start + 500], labels[: start + 500]).auroc
    assert metrics.result() == metrics.result()


def test_merging_leaves_the_other_usable() -> None:
    logits, labels = _rows(2_000, "other")
    first, second = ClickMetrics(1_024), ClickMetrics(1_024)
    first.update(logits[:1_000], labels[:1_000])
    second.update(logits[1_000:], labels[1_000:])
    alone = second.result()
    first.merge(second)
    assert first.result().auroc == _measure(logits, labels).auroc
    assert second.result() == alone
    second.update(logits[:1_000], labels[:1_000])
    assert second.result().auroc == first.result().auroc


def test_counts_stay_exact_beyond_what_doubles_hold() -> None:
    copies, memory_bytes = 1 << 18, 1 << 21
    metrics = ClickMetrics(memory_bytes)
    metrics.update(
        np.tile(np.array([1, 0, 0, -1], np.float32), copies), np.tile(np.array([1, 1, 0, 0], np.float32), copies)
    )
    for _ in range(10):  # a billion rows, whose pairs need 59 bits
        twin = ClickMetrics(memory_bytes)
        twin.merge(metrics)
        metrics.merge(twin)
        copies *= 2
    metrics.update(np.array([0.5], np.float32), np.array([0.0], np.float32))
    clicks, others = 2 * copies, 2 * copies + 1
    wins = copies * (2 * others) + copies * (2 * copies + copies)  # of the clicks at 1, and of those at 0
    result = metrics.result()
    assert result.num_rows == clicks + others == (1 << 30) + 1
    assert result.auroc == wins / (2 * clicks * others)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_has_no_auroc(label: float) -> None:
    result = _measure(np.zeros(4, np.float32), np.full(4, label, np.float32))
    assert result.auroc is None
    assert result.normalised_entropy is None
    assert result.logloss == pytest.approx(math.log(2))
    assert result.calibration == (0.5 if label else None)


def test_no_rows_have_no_metrics() -> None:
    result = ClickMetrics().result()
    assert result == ClickResult(None, None, None, None, None, 0, 0)
    metrics = ClickMetrics(1_024)
    metrics.update(np.empty(0, np.float32), np.empty(0, np.float32))
    metrics.merge(ClickMetrics(1_024))
    assert metrics.result() == result


def test_zeros_of_both_signs_tie() -> None:
    assert _measure(np.array([-0.0, 0.0], np.float32), np.array([1, 0], np.float32)).auroc == 0.5


def test_infinite_logits_rank_at_the_ends() -> None:
    logits = np.array([np.inf, 3e38, -3e38, -np.inf], np.float32)
    right = _measure(logits, np.array([1, 1, 0, 0], np.float32))
    assert (right.auroc, right.logloss) == (1.0, 0.0)
    wrong = _measure(logits, np.array([0, 0, 1, 1], np.float32))
    assert (wrong.auroc, wrong.logloss) == (0.0, math.inf)


def test_takes_any_layout() -> None:
    logits, labels = _rows(1_000, "layout")
    assert _measure(logits[::-1], labels[::-1]).auroc == _measure(logits, labels).auroc
    logits.flags.writeable = False
    assert _measure(logits, labels).num_rows == 1_000


def test_dict_is_plain_json() -> None:
    logits, labels = _rows(100, "json")
    result = _measure(logits, labels)
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False)) == result.as_dict()
    assert result.as_dict()["auroc"] == result.auroc
    infinite = _measure(np.array([np.inf], np.float32), np.zeros(1, np.float32))
    assert infinite.as_dict()["logloss"] is None


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([0.0, np.nan], [0.0, 1.0], "row 1 has logit nan"),
        ([0.0, 0.0], [0.0, 0.5], "row 1 has logit 0.0 and label 0.5"),
        ([0.0], [np.nan], "label nan"),
        ([0.0, 1.0], [0.0], r"\(2,\).*\(1,\)"),
        ([[0.0]], [[0.0]], "not equally long rows"),
    ],
)
def test_refuses_what_cannot_be_rows(logits: list[float], labels: list[float], message: str) -> None:
    metrics = ClickMetrics(1_024)
    with pytest.raises(ValueError, match=message):
        metrics.update(np.array(logits, np.float32), np.array(labels, np.float32))
    assert metrics.result().num_rows == 0


def test_refuses_memory_for_no_row() -> None:
    with pytest.raises(ValueError, match="memory_bytes is 3"):
        ClickMetrics(memory_bytes=3)


@pytest.fixture
def scratch_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def _num_open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_leaves_no_files_behind(scratch_dir: Path) -> None:
    logits, labels = _rows(5_000, "files")
    open_before = _num_open_files()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = ClickMetrics(memory_bytes=1_024)
        metrics.update(logits, labels)
        assert list(scratch_dir.iterdir()) == []
        merged = ClickMetrics(memory_bytes=1_024)
        merged.merge(metrics)
        del metrics
        assert merged.result().auroc == _measure(logits, labels).auroc
        assert list(scratch_dir.iterdir()) == []
        del merged
    assert _num_open_files() == open_before
