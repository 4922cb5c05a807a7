"""Synthetic click logs with a known right answer, of any size: Criteo's text format, and the best any model can do.

`recmill synth criteo --rows 1000000 --days 6 --out DIR --seed 1` writes day_0 … day_5 and world.json.
The rule behind the clicks is `planted.py`'s; this file makes its text, in parallel and in order.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from recmill.data.synthetic import planted
from recmill.data.synthetic.planted import Floats, PlantedRule, Truth
from recmill.errors import ConfigError, DataError
from recmill.files import finished_dir, require_free_space
from recmill.metrics import ClickMetrics
from recmill.settings.criteo import CRITEO, scaled_table_rows
from recmill.settings.synthetic import FIRST_SAMPLE_ROW, SynthSpec
from recmill.settings.tree import Settings

WORLD_FILE = "world.json"

BYTES_PER_ROW = 260
CHUNK_ROWS = 16_384
METRIC_BYTES = 64 * 2**20  # for each of six accumulators

# Rows behind all that are ever written, from which the bias is found.
_SAMPLE_ROWS = 200_000


class DenseRule(Settings):
    """An integer column says weight · t + square_weight · (t² − 1), with t = (log(x + 3) − centre) / deviation."""

    name: str
    missing_frac: float
    weight: float
    square_weight: float
    centre: float
    deviation: float


class CategoryRule(Settings):
    """A category column: how many values, how skewed, and the deviation over the rows of what they say, in logits."""

    name: str
    num_values: int
    exponent: float
    missing_frac: float
    effect: float


class PairRule(Settings):
    """Two category columns and the deviation over the rows of what they say together, in logits."""

    a: str
    b: str
    effect: float


class Score(Settings):
    """The metrics of a predictor on some rows; None where the rows do not define one."""

    auroc: float | None
    logloss: float | None
    normalised_entropy: float | None
    calibration: float | None
    accuracy: float | None
    num_rows: int
    num_clicks: int


class LastDay(Settings):
    """The scores of a predictor on the last day: all of it, the first half of its rows (the longer), the second."""

    whole: Score
    validation: Score
    test: Score


class ClickWorld(Settings):
    """What world.json tells: the rule, and what the best possible predictors score."""

    schema_name: Literal["criteo"] = "criteo"
    rule: str = (
        "logit = bias + sum over dense of weight * t + square_weight * (t^2 - 1), t = (log(x + 3) - centre) / deviation"
        " + sum over categories of an effect per value"
        " + sum over pairs of coefficient * <latent of a's value, latent of b's value>;"
        " an empty integer counts as 0, an empty category says nothing;"
        " effects and latents come from recmill.data.synthetic.planted.build_rule(seed, scale)"
    )
    spec: SynthSpec
    rows_per_day: tuple[int, ...]
    num_clicks: int
    num_bytes: int
    bias: float
    dense: tuple[DenseRule, ...]
    categories: tuple[CategoryRule, ...]
    pairs: tuple[PairRule, ...]
    best_possible: LastDay  # the true click probabilities
    best_without_pairs: LastDay  # the most that a sum of one term per column can know
    without_pairs_slope: (
        float  # its logit is slope * (the rule's logit without the pairs) + offset, which calibrates it
    )
    without_pairs_offset: float


def read_world(directory: Path) -> ClickWorld | None:
    """What is known of a directory of synthetic days; None if it is not one."""
    path = directory / WORLD_FILE
    if not path.is_file():
        return None
    try:
        return ClickWorld.model_validate_json(path.read_bytes())
    except (ValidationError, ConfigError) as error:
        raise DataError(f"{path} is damaged, or of another version of recmill: {error}") from None


def write_criteo(
    spec: SynthSpec,
    out_dir: Path,
    *,
    threads: int = 2,
    overwrite: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> ClickWorld:
    """Write the days and their world.json into a directory that appears when it is complete.

    `on_progress` hears how many rows are written. Memory does not grow with the rows: some chunks per thread, and six
    accumulators of at most 64 MiB.
    """
    if threads < 1:
        raise ConfigError(f"threads = {threads} is rejected: it is 1 or more")
    require_free_space(out_dir, spec.rows * BYTES_PER_ROW, f"a synthetic log of {spec.rows:,} rows")
    with (
        finished_dir(out_dir, overwrite=overwrite, is_ours=lambda there: (there / WORLD_FILE).is_file()) as scratch_dir,
        ThreadPoolExecutor(threads) as pool,
    ):
        answer = _find_answer(spec)
        tally = _Tally(spec, answer)
        for day in range(spec.days):
            with (scratch_dir / f"day_{day}").open("wb") as file:
                for piece in _write_pieces(pool, answer.rule, spec.day_rows(day), num_ahead=threads + 2):
                    file.write(piece.text.data)
                    tally.hear(piece)
                    if on_progress:
                        on_progress(tally.num_rows)
        world = _describe(spec, answer, tally)
        (scratch_dir / WORLD_FILE).write_text(world.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return world


class _Piece(NamedTuple):
    text: NDArray[np.uint8]
    truth: Truth


def _write_piece(rule: PlantedRule, rows: range) -> _Piece:
    buffer = np.empty(len(rows) * planted.MAX_ROW_BYTES, np.uint8)
    truth = Truth(np.empty(len(rows), np.float32), np.empty(len(rows)), np.empty(len(rows)))
    num_bytes = planted.write_rows(rule, rows.start, buffer, truth)
    return _Piece(buffer[:num_bytes], truth)


def _write_pieces(pool: ThreadPoolExecutor, rule: PlantedRule, rows: range, *, num_ahead: int) -> Iterator[_Piece]:
    """The text of some rows in their order, at most `num_ahead` pieces of it in memory or in the making."""
    waiting: deque[Future[_Piece]] = deque()
    for start in range(rows.start, rows.stop, CHUNK_ROWS):
        waiting.append(pool.submit(_write_piece, rule, range(start, min(start + CHUNK_ROWS, rows.stop))))
        if len(waiting) == num_ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Answer(NamedTuple):
    """The rule with its bias, and what calibrates its logit when the pairs are left out."""

    rule: PlantedRule
    slope: float
    offset: float


def _find_answer(spec: SynthSpec) -> _Answer:
    """Build the rule and let it have the wanted click rate, over a fixed sample of rows that no file holds."""
    rule = planted.build_rule(spec.seed, spec.scale)
    alone, pairs = np.empty(_SAMPLE_ROWS), np.empty(_SAMPLE_ROWS)
    planted.draw_logits(rule, FIRST_SAMPLE_ROW, alone, pairs)
    low, high = -50.0, 50.0
    for _ in range(60):
        bias = (low + high) / 2
        low, high = (bias, high) if _sigmoid(bias + alone + pairs).mean() < spec.click_rate else (low, bias)
    return _Answer(rule._replace(bias=bias), *_fit_line(bias + alone, _sigmoid(bias + alone + pairs)))


def _fit_line(logits: Floats, probabilities: Floats) -> tuple[float, float]:
    """The slope and offset at which sigmoid(slope · logit + offset) has the least logloss: Newton's method."""
    inputs = np.stack([logits, np.ones_like(logits)])
    line = np.array([1.0, 0.0])
    for _ in range(20):
        predicted = _sigmoid(line @ inputs)
        curvature = (inputs * (predicted * (1 - predicted))) @ inputs.T
        line -= np.linalg.solve(curvature, inputs @ (predicted - probabilities))
    return float(line[0]), float(line[1])


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-logits)))


class _Tally:
    """Counts the rows, in their order, and scores the best predictors on those of the last day."""

    def __init__(self, spec: SynthSpec, answer: _Answer) -> None:
        last = spec.day_rows(spec.days - 1)
        middle = last.start + (len(last) + 1) // 2
        self._answer = answer
        self._parts = (range(last.start, middle), range(middle, last.stop))
        self._best = [ClickMetrics(METRIC_BYTES) for _ in self._parts]
        self._without_pairs = [ClickMetrics(METRIC_BYTES) for _ in self._parts]
        self.num_rows, self.num_clicks, self.num_bytes = 0, 0, 0

    def hear(self, piece: _Piece) -> None:
        """Take the next rows."""
        labels, alone, pairs = piece.truth
        first = self.num_rows
        for part, best, without_pairs in zip(self._parts, self._best, self._without_pairs, strict=True):
            rows = slice(max(part.start - first, 0), max(part.stop - first, 0))
            logits = self._answer.rule.bias + alone[rows]
            best.update((logits + pairs[rows]).astype(np.float32), labels[rows])
            calibrated = self._answer.slope * logits + self._answer.offset
            without_pairs.update(calibrated.astype(np.float32), labels[rows])
        self.num_rows += len(labels)
        self.num_clicks += int(np.count_nonzero(labels))
        self.num_bytes += len(piece.text)

    def best(self) -> LastDay:
        """What the true probabilities score."""
        return _score(*self._best)

    def without_pairs(self) -> LastDay:
        """What the rule scores without its pairs."""
        return _score(*self._without_pairs)


def _score(validation: ClickMetrics, test: ClickMetrics) -> LastDay:
    whole = ClickMetrics(METRIC_BYTES)
    whole.merge(validation)
    whole.merge(test)
    scores = [Score.model_validate(metrics.result().as_dict()) for metrics in (whole, validation, test)]
    return LastDay(whole=scores[0], validation=scores[1], test=scores[2])


def _describe(spec: SynthSpec, answer: _Answer, tally: _Tally) -> ClickWorld:
    """All that world.json says."""
    rule, names = answer.rule, CRITEO.category_names
    return ClickWorld(
        spec=spec,
        rows_per_day=tuple(len(spec.day_rows(day)) for day in range(spec.days)),
        num_clicks=tally.num_clicks,
        num_bytes=tally.num_bytes,
        bias=rule.bias,
        dense=tuple(
            DenseRule(
                name=name,
                missing_frac=column.missing_frac,
                weight=column.weight,
                square_weight=column.square_weight,
                centre=float(centre),
                deviation=float(deviation),
            )
            for name, column, centre, deviation in zip(
                CRITEO.dense_names, planted.DENSE, rule.centre, rule.deviation, strict=True
            )
        ),
        categories=tuple(
            CategoryRule(name=name, num_values=num_values, **column._asdict())
            for name, num_values, column in zip(names, scaled_table_rows(spec.scale), planted.CATEGORIES, strict=True)
        ),
        pairs=tuple(PairRule(a=names[a], b=names[b], effect=effect) for a, b, effect in planted.PAIRS),
        best_possible=tally.best(),
        best_without_pairs=tally.without_pairs(),
        without_pairs_slope=answer.slope,
        without_pairs_offset=answer.offset,
    )
