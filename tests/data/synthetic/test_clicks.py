"""A synthetic log has Criteo's format, the same bytes for the same seed, and scores that its own rule explains."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from recmill.cli.main import main
from recmill.data.synthetic import clicks as synthetic
from recmill.data.synthetic import planted
from recmill.data.synthetic.clicks import ClickWorld, read_world, write_criteo
from recmill.errors import ConfigError, DataError
from recmill.settings.criteo import NUM_CATEGORIES, NUM_DENSE, PUBLISHED_TABLE_ROWS, scaled_table_rows
from recmill.settings.synthetic import SynthSpec
from recmill.settings.tree import from_tree

SPEC = SynthSpec(rows=40_001, days=3, seed=5)
SMALL = SynthSpec(rows=500, days=2, seed=5)

Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ClickWorld]:
    out_dir = tmp_path_factory.mktemp("synthetic") / "log"
    return out_dir, write_criteo(SPEC, out_dir)


def _text(directory: Path) -> bytes:
    return b"".join((directory / f"day_{day}").read_bytes() for day in range(len(list(directory.glob("day_*")))))


def _bytes_of(spec: SynthSpec, out_dir: Path, threads: int = 2) -> bytes:
    write_criteo(spec, out_dir, threads=threads)
    return _text(out_dir)


def _fields(text: bytes) -> list[list[str]]:
    return [line.split("\t") for line in text.decode("ascii").removesuffix("\n").split("\n")]


def test_every_line_has_the_format(made: tuple[Path, ClickWorld]) -> None:
    number, value = r"\t(-?(0|[1-9][0-9]{0,7}))?", r"\t([0-9a-f]{8})?"
    line = re.compile(f"[01]({number}){{{NUM_DENSE}}}({value}){{{NUM_CATEGORIES}}}\n")
    for day in range(SPEC.days):
        text = (made[0] / f"day_{day}").read_bytes().decode("ascii")
        assert all(line.fullmatch(row) for row in text.splitlines(keepends=True))
    assert sorted(path.name for path in made[0].iterdir()) == ["day_0", "day_1", "day_2", "world.json"]


def test_rows_are_spread_evenly_over_the_days(made: tuple[Path, ClickWorld]) -> None:
    rows_per_day = tuple((made[0] / f"day_{day}").read_bytes().count(b"\n") for day in range(SPEC.days))
    assert rows_per_day == made[1].rows_per_day
    assert sum(rows_per_day) == SPEC.rows
    assert max(rows_per_day) - min(rows_per_day) <= 1


def test_integers_are_missing_negative_and_heavy_tailed(made: tuple[Path, ClickWorld]) -> None:
    rows = _fields(_text(made[0]))
    for j, column in enumerate(planted.DENSE):
        cells = [row[1 + j] for row in rows]
        numbers = np.array([int(cell) for cell in cells if cell])
        assert cells.count("") / len(cells) == pytest.approx(column.missing_frac, abs=0.015)
        assert numbers.min() == -column.subtracted
        assert numbers.max() > 8 * np.median(numbers)
    assert sum(column.subtracted == 1 for column in planted.DENSE) >= NUM_DENSE - 3


def test_categories_follow_their_power_laws(made: tuple[Path, ClickWorld]) -> None:
    rows, salts = _fields(_text(made[0])), planted.build_rule(SPEC.seed, SPEC.scale).salts
    for c, (column, num_values) in enumerate(zip(planted.CATEGORIES, scaled_table_rows(SPEC.scale), strict=True)):
        counts = Counter(row[1 + NUM_DENSE + c] for row in rows)
        assert counts.pop("", 0) / len(rows) == pytest.approx(column.missing_frac, abs=0.015)
        assert len(counts) <= num_values
        shares = np.arange(1, num_values + 1) ** -column.exponent
        shares /= shares.sum()
        values = [f"{planted.category_value(np.uint64(rank), salts[c]):08x}" for rank in range(min(num_values, 1000))]
        for value, share in zip(values[:3], shares, strict=False):
            assert counts[value] / counts.total() == pytest.approx(share, abs=0.015)
        frequent = sum(counts[value] for value in values)
        assert frequent / counts.total() == pytest.approx(shares[:1000].sum(), abs=0.015)


def test_no_two_ranks_share_a_value() -> None:
    values = {int(planted.category_value(np.uint64(rank), np.uint32(0xDEADBEEF))) for rank in range(100_000)}
    assert len(values) == 100_000


def test_cells_hold_every_rank_once_at_any_size() -> None:
    for num_values in (3, planted.NUM_HEAD, planted.NUM_HEAD + 1, 100_000, max(PUBLISHED_TABLE_ROWS)):
        cells = planted.power_law_cells(num_values, 1.1)
        assert cells.first_rank[0] == 0
        assert np.array_equal(cells.first_rank[1:], np.cumsum(cells.width)[:-1])
        assert cells.width.sum() == num_values
        assert len(cells.share) < planted.NUM_HEAD + 400
        assert cells.share.sum() == pytest.approx(1.0)
    exact = np.arange(1, 100_001) ** -1.1
    grouped = planted.power_law_cells(100_000, 1.1)
    sums = np.add.reduceat(exact / exact.sum(), grouped.first_rank)
    np.testing.assert_allclose(grouped.share, sums, rtol=1e-6)


def test_alias_table_gives_the_shares_back() -> None:
    share = planted.power_law_cells(50, 1.2).share
    threshold, alias = planted.alias_table(share)
    kept = threshold / 2**32
    given = (kept + np.bincount(alias, 1 - kept, minlength=50)) / 50
    np.testing.assert_allclose(given, share, atol=1e-9)


def test_bytes_depend_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _bytes_of(SMALL, tmp_path / "a")
    monkeypatch.setattr(synthetic, "CHUNK_ROWS", 7)
    assert _bytes_of(SMALL, tmp_path / "b", threads=1) == first
    assert _bytes_of(SMALL, tmp_path / "c", threads=5) == first
    assert (tmp_path / "b/world.json").read_bytes() == (tmp_path / "c/world.json").read_bytes()
    assert _bytes_of(SMALL.with_({"seed": 6}), tmp_path / "d") != first


def test_a_shorter_log_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    shorter = SynthSpec(rows=120, days=5, seed=SMALL.seed)
    longer = _bytes_of(SMALL, tmp_path / "long")
    assert longer.startswith(_bytes_of(shorter, tmp_path / "short"))


@pytest.mark.parametrize("click_rate", [0.03, 0.5])
def test_click_rate_is_the_one_asked_for(click_rate: float, tmp_path: Path) -> None:
    world = write_criteo(SynthSpec(rows=60_000, days=1, seed=2, click_rate=click_rate), tmp_path / "log")
    text = _text(tmp_path / "log")
    assert world.num_clicks == sum(line.startswith(b"1") for line in text.splitlines())
    assert world.num_clicks / 60_000 == pytest.approx(click_rate, abs=0.005)
    assert world.num_bytes == len(text)


def _logits_from_text(rows: list[list[str]], world: ClickWorld) -> tuple[Floats, Floats]:
    """The rule once more, slowly, from the text and world.json: the logits with and without the pairs."""
    rule = planted.build_rule(world.spec.seed, world.spec.scale)
    alone = np.full(len(rows), world.bias)
    for j, dense in enumerate(world.dense):
        numbers = np.array([float(row[1 + j] or 0) for row in rows])
        t = (np.log(numbers + 3) - dense.centre) / dense.deviation
        alone += dense.weight * t + dense.square_weight * (t**2 - 1)
    latents = {}
    for c, category in enumerate(world.categories):
        ranks = {"": -1} | {
            f"{planted.category_value(np.uint64(rank), rule.salts[c]):08x}": rank for rank in range(category.num_values)
        }
        rank = np.array([ranks[row[1 + NUM_DENSE + c]] for row in rows])
        cell = np.where((rank >= 0) & (rank < planted.NUM_HEAD), rule.first_cell[c] + rank, 0)
        alone += rule.effect[cell]
        latents[category.name] = rule.latent[cell]
    pairs = sum(
        pair.effect / np.sqrt(planted.LATENT_RANK) * (latents[pair.a] * latents[pair.b]).sum(axis=1)
        for pair in world.pairs
    )
    return alone + pairs, alone


def _expected_auroc(probabilities: Floats) -> float:
    """The AUROC of the probabilities themselves, over labels drawn from them."""
    p = np.sort(probabilities)
    below = np.cumsum(1 - p) - (1 - p)
    return float((p * below).sum() / (p.sum() * (1 - p).sum() - (p * (1 - p)).sum()))


def test_scores_are_those_of_the_rule(made: tuple[Path, ClickWorld]) -> None:
    out_dir, world = made
    rows = _fields((out_dir / "day_2").read_bytes())
    labels = np.array([float(row[0]) for row in rows])
    logits, alone = _logits_from_text(rows, world)
    calibrated = world.without_pairs_slope * alone + world.without_pairs_offset
    middle = (len(rows) + 1) // 2
    halves = {"whole": slice(None), "validation": slice(middle), "test": slice(middle, None)}
    for name, part in halves.items():
        for scores, truth in ((world.best_possible, logits), (world.best_without_pairs, calibrated)):
            score = getattr(scores, name)
            # float32 scores tie or change order only within 1e-7 of each other
            assert score.auroc == pytest.approx(roc_auc_score(labels[part], truth[part]), abs=1e-6)
            assert score.logloss == pytest.approx(log_loss(labels[part], 1 / (1 + np.exp(-truth[part]))), abs=1e-6)
            assert score.num_rows == len(labels[part])
    probabilities = 1 / (1 + np.exp(-logits))
    assert world.best_possible.whole.auroc == pytest.approx(_expected_auroc(probabilities), abs=0.015)
    assert labels.mean() == pytest.approx(probabilities.mean(), abs=0.015)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_pairs_hold_much_of_what_can_be_known(seed: int) -> None:
    rule = synthetic._find_answer(SynthSpec(rows=2, days=1, seed=seed)).rule
    alone, pairs = np.empty(50_000), np.empty(50_000)
    planted.draw_logits(rule, 0, alone, pairs)
    probabilities = 1 / (1 + np.exp(-(rule.bias + alone + pairs)))
    labels = np.random.default_rng(seed).random(50_000) < probabilities
    best, without_pairs = roc_auc_score(labels, probabilities), roc_auc_score(labels, alone)
    assert 0.80 < best < 0.85
    assert without_pairs < best - 0.05


def test_latents_say_nothing_on_their_own() -> None:
    rule = planted.build_rule(3, 0.01)
    for c, column in enumerate(planted.CATEGORIES):
        cells = slice(rule.first_cell[c], rule.first_cell[c] + int(rule.num_cells[c]))
        num_values = scaled_table_rows(0.01)[c]
        share = planted.power_law_cells(num_values, column.exponent).share * (1 - column.missing_frac)
        np.testing.assert_allclose(share @ rule.latent[cells], 0.0, atol=1e-9)
        np.testing.assert_allclose((rule.latent[cells].T * share) @ rule.latent[cells], np.eye(2), atol=1e-9)
        assert share @ rule.effect[cells] ** 2 == pytest.approx(column.effect**2)


def test_world_file_is_read_back(made: tuple[Path, ClickWorld], tmp_path: Path) -> None:
    assert read_world(made[0]) == made[1]
    assert read_world(tmp_path) is None
    (tmp_path / "world.json").write_text('{"spec": 1}')
    with pytest.raises(DataError, match=r"world\.json is damaged"):
        read_world(tmp_path)


def test_one_row_is_a_log(tmp_path: Path) -> None:
    world = write_criteo(SynthSpec(rows=1, days=1, seed=0), tmp_path / "log")
    assert world.best_possible.test.num_rows == 0
    assert world.best_possible.whole.auroc is None
    assert _text(tmp_path / "log").count(b"\n") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 1}, "rows = 1 is rejected: 2 days take 2 to"),
        ({"days": 0}, "days = 0 is rejected: a log has at least 1 day"),
        ({"seed": -1}, "seed = -1 is rejected: it is 0 or more"),
        ({"scale": 0.0}, r"scale = 0\.0 is rejected: it is above 0 and at most 1"),
        ({"scale": 1.5}, r"scale = 1\.5 is rejected"),
        ({"click_rate": 0.001}, r"click_rate = 0\.001 is rejected: it is between 0\.001 and 0\.999"),
        ({"click_rate": float("nan")}, "click_rate = NaN is rejected"),
    ],
)
def test_refuses_what_cannot_be_a_world(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_tree(SynthSpec, SMALL.model_dump() | changes)


def test_refuses_no_threads(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="threads = 0 is rejected"):
        write_criteo(SMALL, tmp_path / "log", threads=0)


def test_refuses_what_the_disk_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1,000,000,000,000,000 rows needs about .* GiB"):
        write_criteo(SMALL.with_({"rows": 10**15}), tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


def test_replaces_a_directory_only_when_told(tmp_path: Path) -> None:
    out_dir = tmp_path / "log"
    out_dir.mkdir()
    write_criteo(SMALL, out_dir)
    before = _text(out_dir)
    other = SMALL.with_({"seed": 9})
    with pytest.raises(DataError, match=r"log is not empty.*--overwrite"):
        write_criteo(other, out_dir)
    assert _text(out_dir) == before
    write_criteo(other, out_dir, overwrite=True)
    assert _text(out_dir) != before
    assert list(tmp_path.iterdir()) == [out_dir]


def _fail_after(num_calls: int) -> Callable[..., int]:
    calls = iter(range(num_calls))

    def write_rows(*args: object) -> int:
        if next(calls, None) is None:
            raise OSError("the disk caught fire")
        return int(original(*args))

    original = planted.write_rows
    return write_rows


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failure_leaves_nothing_behind(overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_dir = tmp_path / "log"
    if overwrite:
        write_criteo(SMALL, out_dir)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(synthetic, "CHUNK_ROWS", 50)
    monkeypatch.setattr(planted, "write_rows", _fail_after(7))
    with pytest.raises(OSError, match="caught fire"):
        write_criteo(SMALL.with_({"seed": 6}), out_dir, overwrite=overwrite)
    assert sorted(tmp_path.rglob("*")) == before


def test_progress_counts_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "CHUNK_ROWS", 100)
    heard: list[int] = []
    write_criteo(SMALL, tmp_path / "log", on_progress=heard.append)
    assert heard == [100, 200, 250, 350, 450, 500]


def test_command_writes_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["synth", "criteo", "--rows", "500", "--days", "2", "--seed", "5", "--out", str(tmp_path / "log")]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "500 rows in 2 days" in told
    assert re.search(r"best possible on the last day +AUROC 0\.\d{4} logloss 0\.\d{4} · validation", told)
    assert re.search(r"best without category pairs +AUROC 0\.\d{4}", told)
    assert _text(tmp_path / "log") == _bytes_of(SMALL, tmp_path / "same")
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*command, "--click-rate", "2"]) == 2
    assert "click_rate = 2.0 is rejected" in capsys.readouterr().err
