"""Preparing against the published code where it is right, and against formulas where it is mended; and its bytes."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import xxhash
from numpy.typing import NDArray

from recmill.data.encode.presets import PRESETS
from recmill.data.logs.split import find_days, split_by_day
from recmill.data.prepared.parquet import ParquetFileWriter
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.errors import ConfigError
from recmill.settings.criteo import CRITEO
from tests.data.jobs import digests_of, job_of

Array = NDArray[Any]


def _load(out_dir: Path, kind: str, days: int = 3) -> list[Array]:
    return [np.load(out_dir / f"day_{day}_{kind}.npy") for day in range(days)]


def _raw_values(data_dir: Path, days: list[int]) -> list[list[str]]:
    lines = [line for day in days for line in (data_dir / f"day_{day}").read_text().splitlines()]
    return [line.split("\t")[14:] for line in lines]


# In a process of its own: it leaves files open and warns of itself.
UPSTREAM = """
import sys
from torchrec.datasets.criteo import BinaryCriteoUtils
data_dir, out_dir, threshold = sys.argv[1], sys.argv[2], int(sys.argv[3])
for day in range(3):
    paths = [f"{out_dir}/day_{day}_{kind}.npy" for kind in ("dense", "sparse", "labels")]
    BinaryCriteoUtils.tsv_to_npys(f"{data_dir}/day_{day}", *paths)
sparse = [f"{out_dir}/day_{day}_sparse.npy" for day in range(3)]
BinaryCriteoUtils.sparse_to_contiguous(sparse, out_dir, frequency_threshold=threshold, output_file_suffix=".npy")
"""


@pytest.fixture(scope="module")
def upstream(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """What TorchRec's own functions make of the same days, for a frequency threshold."""

    @cache
    def run(threshold: int) -> Path:
        out_dir = tmp_path_factory.mktemp(f"upstream{threshold}")
        command = [sys.executable, "-W", "ignore", "-c", UPSTREAM, str(tiny_world_dir), str(out_dir), str(threshold)]
        subprocess.run(command, check=True, capture_output=True)
        return out_dir

    return run


@pytest.mark.parametrize(("preset", "threshold"), [("torchrec", 0), ("torchrec-freq3", 3), ("mlperf", 0)])
def test_torchrec_presets_equal_torchrec(
    tiny_world_dir: Path, tmp_path: Path, upstream: Callable[[int], Path], preset: str, threshold: int
) -> None:
    """Ids and labels equal theirs bit for bit. Dense differs as named: our minimum is of all files, theirs of each."""
    prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name=preset))
    theirs = upstream(threshold)
    for kind in ("sparse", "labels"):
        for actual, expected in zip(_load(tmp_path / "out", kind), _load(theirs, kind), strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_array_equal(actual, expected)
    numbers = [_raw_numbers(tiny_world_dir, day) for day in range(3)]
    file_minima, minimum = [n.min() for n in numbers], min(n.min() for n in numbers)
    for day, (actual, expected) in enumerate(
        zip(_load(tmp_path / "out", "dense"), _load(theirs, "dense"), strict=True)
    ):
        assert actual.dtype == expected.dtype == np.float32
        np.testing.assert_array_equal(actual, np.log(numbers[day] - minimum + 2).astype(np.float32))
        if file_minima[day] == minimum:
            np.testing.assert_array_max_ulp(actual, expected, 1)  # they take the logarithm in float32
    assert minimum in file_minima


def _raw_numbers(data_dir: Path, day: int) -> Array:
    lines = (data_dir / f"day_{day}").read_text().splitlines()
    return np.array([[float(field or 0) for field in line.split("\t")[1:14]] for line in lines])


@pytest.mark.parametrize(("preset", "min_count"), [("recmill", 2), ("ray", 3)])
def test_frequency_presets_follow_their_formula(
    tiny_world_dir: Path, tmp_path: Path, preset: str, min_count: int
) -> None:
    """Rows by falling count in the training days, ties as first seen; 0 for missing, 1 for the rest; log(x+3)."""
    prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name=preset))
    training, everything = _raw_values(tiny_world_dir, [0, 1]), _raw_values(tiny_world_dir, [0, 1, 2])
    ids = np.concatenate(_load(tmp_path / "out", "sparse"))
    for column in range(26):
        counts = Counter(row[column] for row in training if row[column])
        kept = sorted((v for v, n in counts.items() if n >= min_count), key=lambda v: -counts[v])
        rows = {"": 0, **{value: i + 2 for i, value in enumerate(kept)}}
        assert ids[:, column].tolist() == [rows.get(row[column], 1) for row in everything], column
    dense = np.concatenate(_load(tmp_path / "out", "dense"))
    numbers = np.concatenate([_raw_numbers(tiny_world_dir, day) for day in range(3)])
    np.testing.assert_array_equal(dense, np.log(np.maximum(numbers + 3, 1)).astype(np.float32))


@pytest.mark.parametrize("preset", ["oneflow-mod", "oneflow-hash"])
@pytest.mark.parametrize("modulo", [None, 1000])
def test_oneflow_presets_follow_their_formula(
    tiny_world_dir: Path, tmp_path: Path, preset: str, modulo: int | None
) -> None:
    """The Scala tool's ids, each in its own table, and the row behind them for missing; log(x+2), of 0 if missing."""
    manifest = prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name=preset, modulo=modulo, store="parquet"))
    num_values = modulo or 40_000_000
    assert manifest["table_rows"] == [num_values + 1] * 26
    assert manifest["selection"] is None
    paths = [tmp_path / "out" / name for subset in manifest["subsets"].values() for name, _, _ in subset]
    frame = pl.concat([pl.read_parquet(path) for path in paths])
    texts = _raw_values(tiny_world_dir, [0, 1, 2])
    num_missing = 0
    for column in range(26):
        seed = xxhash.xxh64_intdigest((column + 1).to_bytes(4, "little"), 42)
        hashed = [
            int(row[column] or "0", 16)
            if preset == "oneflow-mod"
            else xxhash.xxh64_intdigest(row[column].encode(), seed)
            for row in texts
        ]
        expected = [h % num_values if row[column] else num_values for h, row in zip(hashed, texts, strict=True)]
        assert frame[f"C{column + 1}"].to_list() == expected, column
        num_missing += expected.count(num_values)
    assert num_missing
    numbers = np.concatenate([_raw_numbers(tiny_world_dir, day) for day in range(3)])
    dense = frame.select([f"I{i}" for i in range(1, 14)]).to_numpy()
    np.testing.assert_array_equal(dense, np.log(np.maximum(numbers + 2, 1)).astype(np.float32))


@pytest.mark.parametrize("preset", ["ray", "recmill"])
def test_at_most_so_many_values_of_a_column_have_rows(tiny_world_dir: Path, tmp_path: Path, preset: str) -> None:
    """The most frequent; of equally frequent ones those that come first. However little memory there is to merge in."""
    manifest = prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name=preset, max_values=7, min_count=4))
    training, everything = _raw_values(tiny_world_dir, [0, 1]), _raw_values(tiny_world_dir, [0, 1, 2])
    ids = np.concatenate(_load(tmp_path / "out", "sparse"))
    num_ties = 0
    for column in range(26):
        counts = Counter(row[column] for row in training if row[column])
        ranked = sorted((v for v, n in counts.items() if n >= 4), key=lambda v: -counts[v])
        num_ties += len(ranked) > 7 and counts[ranked[6]] == counts[ranked[7]]
        rows = {"": 0, **{value: i + 2 for i, value in enumerate(ranked[:7])}}
        assert manifest["table_rows"][column] == len(rows) + 1
        assert ids[:, column].tolist() == [rows.get(row[column], 1) for row in everything], column
    assert num_ties, "nothing was decided by who came first"
    assert manifest["selection"] == {"by_frequency": True, "min_count": 4, "max_values": 7}
    assert "the 7 most frequent of a column at most" in (tmp_path / "out" / "README.md").read_text()
    small = job_of(
        tiny_world_dir, tmp_path / "small", preset_name=preset, max_values=7, min_count=4, memory_bytes=9_000
    )
    assert digests_of(prepare(small)) == digests_of(manifest)


def test_a_threshold_of_ones_own_is_the_presets_with_that_threshold(tiny_world_dir: Path, tmp_path: Path) -> None:
    named = prepare(job_of(tiny_world_dir, tmp_path / "named", preset_name="torchrec-freq3"))
    given = prepare(job_of(tiny_world_dir, tmp_path / "given", preset_name="torchrec", min_count=3))
    different = {name for name, digest in digests_of(named).items() if digests_of(given)[name] != digest}
    assert different == {"README.md"}  # which tells the preset's name


@pytest.mark.parametrize(
    ("preset", "changes", "complaint"),
    [
        ("recmill", {"max_values": 0}, "--max-values 0: give at least 1"),
        ("recmill", {"min_count": -1}, "--min-count -1: give at least 1"),
        ("oneflow-mod", {"modulo": 0}, "--modulo 0: give at least 1"),
        ("recmill", {"modulo": 9}, "--modulo 9: preset recmill counts values, and takes none modulo"),
        ("oneflow-mod", {"max_values": 9}, "--max-values 9: preset oneflow-mod counts no values; --modulo sizes"),
        ("oneflow-hash", {"min_count": 9}, "--min-count 9: preset oneflow-hash counts no values; --modulo sizes"),
        ("mlperf", {"max_values": 9}, "--max-values 9: preset mlperf gives rows to values as first seen, not"),
    ],
)
def test_numbers_that_a_preset_has_no_use_for_are_refused(
    tiny_world_dir: Path, tmp_path: Path, preset: str, changes: dict[str, int], complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name=preset, **changes))
    assert complaint in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_cap_folds_ids_back(tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As published: an id beyond the largest table is taken modulo its rows."""
    from dataclasses import replace

    whole = prepare(job_of(tiny_world_dir, tmp_path / "whole", preset_name="torchrec"))
    rule = PRESETS["mlperf"].vocabulary
    assert rule is not None
    assert rule.cap == 40_000_000
    monkeypatch.setitem(PRESETS, "mlperf", replace(PRESETS["mlperf"], vocabulary=replace(rule, cap=50)))
    capped = prepare(job_of(tiny_world_dir, tmp_path / "capped", preset_name="mlperf"))
    assert capped["table_rows"] == [min(rows, 50) for rows in whole["table_rows"]]
    assert max(whole["table_rows"]) > 50
    folded = np.concatenate(_load(tmp_path / "whole", "sparse")) % np.array(capped["table_rows"])
    np.testing.assert_array_equal(np.concatenate(_load(tmp_path / "capped", "sparse")), folded)


def test_torchrecs_own_reader_yields_our_rows(tiny_world_dir: Path, tmp_path: Path) -> None:
    from torchrec.datasets.criteo import InMemoryBinaryCriteoIterDataPipe

    manifest = prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name="torchrec"))
    files = [[str(tmp_path / "out" / f"day_{d}_{kind}.npy") for d in (0, 1)] for kind in ("dense", "sparse", "labels")]
    pipe = InMemoryBinaryCriteoIterDataPipe(
        "train", *files, batch_size=100, rank=0, world_size=1, hashes=manifest["table_rows"]
    )
    batches = list(pipe)
    dense = np.concatenate([batch.dense_features.numpy() for batch in batches])
    labels = np.concatenate([batch.labels.numpy() for batch in batches])
    ids = np.concatenate([batch.sparse_features.values().numpy().reshape(26, -1).T for batch in batches])
    np.testing.assert_array_equal(dense, np.concatenate(_load(tmp_path / "out", "dense", 2)))
    np.testing.assert_array_equal(ids, np.concatenate(_load(tmp_path / "out", "sparse", 2)))
    np.testing.assert_array_equal(labels, np.concatenate(_load(tmp_path / "out", "labels", 2))[:, 0])


def test_parquet_holds_what_npy_does(tiny_world_dir: Path, tmp_path: Path) -> None:
    """Read by pyarrow and by polars, under OneFlow's names."""
    prepare(job_of(tiny_world_dir, tmp_path / "npy"))
    manifest = prepare(job_of(tiny_world_dir, tmp_path / "parquet", store="parquet"))
    paths = [tmp_path / "parquet" / name for name, _, _ in manifest["subsets"]["train"]]
    assert len(paths) > 2
    names = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    tables = [pq.read_table(path) for path in paths]
    arrow = np.concatenate([np.stack([table[name].to_numpy() for name in names[1:14]], 1) for table in tables])
    frame = pl.concat([pl.read_parquet(path) for path in paths])
    assert frame.columns == names
    for dense in (arrow, frame.select(names[1:14]).to_numpy()):
        np.testing.assert_array_equal(dense, np.concatenate(_load(tmp_path / "npy", "dense", 2)))
    ids = frame.select(names[14:]).to_numpy()
    np.testing.assert_array_equal(ids, np.concatenate(_load(tmp_path / "npy", "sparse", 2)))
    np.testing.assert_array_equal(frame["label"].to_numpy(), np.concatenate(_load(tmp_path / "npy", "labels", 2))[:, 0])


@pytest.mark.parametrize("store", ["npy", "parquet"])
@pytest.mark.parametrize("seed", [None, 4])
def test_bytes_do_not_depend_on_threads(tiny_world_dir: Path, tmp_path: Path, store: str, seed: int | None) -> None:
    runs = [
        prepare(job_of(tiny_world_dir, tmp_path / f"{jobs}", jobs=jobs, store=store, seed=seed)) for jobs in (1, 2, 5)
    ]
    assert digests_of(runs[0]) == digests_of(runs[1]) == digests_of(runs[2])


def test_npy_bytes_do_not_depend_on_the_cut(tiny_world_dir: Path, tmp_path: Path) -> None:
    runs = [
        prepare(job_of(tiny_world_dir, tmp_path / f"{size}", seed=4, part_bytes=size))
        for size in (9_000, 77_777, 1 << 30)
    ]
    assert digests_of(runs[0]) == digests_of(runs[1]) == digests_of(runs[2])


@pytest.mark.parametrize("store", ["npy", "parquet"])
def test_a_run_that_is_stopped_anywhere_goes_on_to_the_same_bytes(
    tiny_world_dir: Path, tmp_path: Path, store: str
) -> None:
    """Stopped at every record it writes, again and again, until it is through."""
    whole = prepare(job_of(tiny_world_dir, tmp_path / "whole", store=store, seed=2, part_bytes=150_000))
    num_stops = 0
    while True:
        calls = list[str]()

        def stop_soon(stage: str, done: int, total: int, calls: list[str] = calls) -> None:
            calls.append(stage)
            if calls.count(stage) > 1 and done < total:
                raise KeyboardInterrupt

        job = job_of(tiny_world_dir, tmp_path / "out", store=store, seed=2, part_bytes=150_000, jobs=1)
        object.__setattr__(job, "on_progress", stop_soon)
        try:
            stopped = prepare(job)
            break
        except KeyboardInterrupt:
            num_stops += 1
            assert not (tmp_path / "out").exists()
    assert num_stops > 5
    assert digests_of(stopped) == digests_of(whole)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("seed", [None, 2])
def test_a_run_that_is_killed_while_it_writes_a_part_goes_on_to_the_same_bytes(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    whole = prepare(job_of(tiny_world_dir, tmp_path / "whole", store="parquet", seed=seed, part_bytes=150_000))
    job = job_of(tiny_world_dir, tmp_path / "out", store="parquet", seed=seed, part_bytes=150_000, jobs=1)

    def killed(_writer: ParquetFileWriter) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ParquetFileWriter, "close", killed)
        patch.setattr(ParquetFileWriter, "abandon", lambda _writer: None)
        with pytest.raises(KeyboardInterrupt):
            prepare(job)
    assert any(job.work_dir.rglob(".part-*.parquet.*"))
    for path in job.work_dir.rglob(".part-*.parquet.*"):
        path.rename(path.with_suffix(".1"))  # the next attempt has another process id
    assert digests_of(prepare(job)) == digests_of(whole)
    assert not any(path.name.startswith(".") for path in (tmp_path / "out").rglob("*"))


def test_shuffling_moves_training_rows_only(tiny_world_dir: Path, tmp_path: Path) -> None:
    prepare(job_of(tiny_world_dir, tmp_path / "plain"))
    prepare(job_of(tiny_world_dir, tmp_path / "shuffled", seed=9, memory_bytes=1 << 20))
    rows = {}
    for name in ("plain", "shuffled"):
        arrays = [np.concatenate(_load(tmp_path / name, kind)) for kind in ("dense", "sparse", "labels")]
        rows[name] = np.concatenate([a.astype(np.float64) for a in arrays], axis=1)
        np.testing.assert_array_equal(rows[name][2000:], rows["plain"][2000:])
    train, shuffled = rows["plain"][:2000], rows["shuffled"][:2000]
    assert (train != shuffled).any(axis=1).mean() > 0.9
    np.testing.assert_array_equal(train[np.lexsort(train.T)], shuffled[np.lexsort(shuffled.T)])


def test_the_manifest_and_the_page_tell_what_is_there(tiny_world_dir: Path, tmp_path: Path) -> None:
    manifest = prepare(job_of(tiny_world_dir, tmp_path / "out"))
    labels = _load(tmp_path / "out", "labels")
    assert manifest["rows"] == {"train": 2000, "validation": 500, "test": 500}
    assert manifest["clicks"]["train"] == int(labels[0].sum() + labels[1].sum())
    assert manifest["clicks"]["test"] == int(labels[2][500:].sum())
    assert manifest["subsets"]["test"] == [["day_2", 500, 1000]]
    assert {"recmill", "numpy", "python"} <= manifest["versions"].keys()
    page = (tmp_path / "out" / "README.md").read_text()
    assert "| train | 2,000 |" in page
    assert ",".join(map(str, manifest["table_rows"])) in page
    ids = np.concatenate(_load(tmp_path / "out", "sparse"))
    assert (ids.max(axis=0) < np.array(manifest["table_rows"])).all()


@pytest.mark.parametrize("preset", ["recmill", "torchrec"])
def test_the_order_of_the_halves_changes_their_use_and_no_byte(
    tiny_world_dir: Path, tmp_path: Path, preset: str
) -> None:
    """The preset that counts all days does so in the order of the files, whatever the rows are for."""
    days = find_days(tiny_world_dir)
    torchrec, oneflow = (
        prepare(
            PrepareJob(split_by_day(days, first_half=half), CRITEO, tmp_path / half, preset, part_bytes=40_000, seed=3)
        )
        for half in ("validation", "test")
    )
    assert (torchrec["first_half"], oneflow["first_half"]) == ("validation", "test")
    pages = {"README.md"}
    assert {name: digest for name, digest in digests_of(torchrec).items() if name not in pages} == {
        name: digest for name, digest in digests_of(oneflow).items() if name not in pages
    }
    assert torchrec["subsets"]["train"] == oneflow["subsets"]["train"]
    assert torchrec["subsets"]["validation"] == oneflow["subsets"]["test"] == [["day_2", 0, 500]]
    assert torchrec["subsets"]["test"] == oneflow["subsets"]["validation"] == [["day_2", 500, 1000]]
    assert torchrec["clicks"]["validation"] == oneflow["clicks"]["test"]
