"""Multi-hot rows are the published ones, the same on the fly and from archives, which are rejected unless whole."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.logs.split import find_days, split_by_day
from recmill.data.prepared.directory import Prepared, read_facts
from recmill.data.prepared.npy import NpyLayout
from recmill.data.prepared.npz import MultiHotFile, MultiHotTable
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.stream import multi_hot
from recmill.data.stream.multi_hot import MultiHotReader, MultiHotTables
from recmill.data.stream.stream import Order, Stream
from recmill.data.stream.text_reader import TextReader
from recmill.errors import ConfigError, DataError, UserError
from recmill.settings.criteo import CRITEO
from recmill.settings.data import SPLIT_NAMES, Access, DataConfig
from recmill.settings.multi_hot import MLPERF_SIZES, Distribution, MultiHot
from recmill.settings.tree import from_tree
from tests.laws.encode import assert_same_rows
from tests.laws.resume import assert_resumes_everywhere

DISTRIBUTIONS: tuple[Distribution, ...] = ("uniform", "pareto")
SIZES, ROWS = (3, 1, 7, 2), (50, 3, 1001, 1)
every_distribution = pytest.mark.parametrize("distribution", DISTRIBUTIONS)
WIDE = MultiHot(tuple(1 + i % 4 for i in range(26)))


def _published_tables(rule: MultiHot, table_rows: tuple[int, ...]) -> list[NDArray[np.int32]]:
    """The rule as it stands: one seed, table after table, each drawn at once."""
    rng, tables = np.random.RandomState(0), []
    for num_rows, size in zip(table_rows, rule.sizes, strict=True):
        own = np.arange(num_rows)[:, np.newaxis]
        if rule.distribution == "uniform":
            others: NDArray[Any] = rng.randint(0, num_rows, size=(num_rows, size - 1))
        else:
            with np.errstate(invalid="ignore"):  # most of the tail is beyond int32
                others = rng.pareto(a=0.25, size=(num_rows, size - 1)).astype(np.int32) % num_rows
        tables.append(np.concatenate((own, others), axis=-1).astype(np.int32))
    return tables


@every_distribution
@pytest.mark.parametrize("piece_numbers", [1, 100, 1 << 20])
def test_drawn_rows_are_the_published_ones(
    distribution: Distribution, piece_numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are drawn at once."""
    monkeypatch.setattr(multi_hot, "_PIECE_NUMBERS", piece_numbers)
    rule = MultiHot(SIZES, distribution)
    ids = np.stack([np.arange(3000) % rows for rows in ROWS], axis=1)
    wide = MultiHotTables(rule, ROWS).widen(ids)
    published = _published_tables(rule, ROWS)
    np.testing.assert_array_equal(wide, np.concatenate([t[ids[:, i]] for i, t in enumerate(published)], axis=1))


def test_columns_of_one_id_draw_nothing() -> None:
    ids = np.array([[4, 2], [0, 0]])
    np.testing.assert_array_equal(MultiHotTables(MultiHot((1, 1)), (5, 3)).widen(ids), ids)


def test_an_id_outside_its_table_is_left_for_the_tables_to_refuse() -> None:
    wide = MultiHotTables(MultiHot((2, 3)), (5, 3)).widen(np.array([[5, 1], [0, -7]]))
    assert wide[0, :2].tolist() == [5, 5]
    assert wide[1, 2:].tolist() == [-7, -7, -7]


def test_tables_that_do_not_fit_are_refused_before_they_are_drawn() -> None:
    with pytest.raises(
        DataError, match=r"^drawing the tables of multi-hot rows needs about 2793967\.7 GiB in .*make room"
    ):
        MultiHotTables(MultiHot((750_001,)), (1_000_000_000,))
    with pytest.raises(ConfigError, match=r"^a table has 2,147,483,648 rows; the ids of multi-hot rows have 32 bits"):
        MultiHotTables(MultiHot((2,)), (1 << 31,))


def test_mlperfs_sizes_are_the_published_ones() -> None:
    assert len(MLPERF_SIZES) == 26
    assert sum(MLPERF_SIZES) == 214
    for given in ("mlperf", ",".join(map(str, MLPERF_SIZES)), list(MLPERF_SIZES)):
        config = from_tree(DataConfig, {"multi_hot": given, "table_rows": [9] * 26})
        assert config.multi_hot == config.slots_per_column == MLPERF_SIZES


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"multi_hot": [3, 2]}, "data.multi_hot has 2 numbers; schema criteo has 26 category columns"),
        ({"multi_hot": [1] * 25 + [0]}, "data.multi_hot gives column cat_25 0 ids; it can have 1 to 1024"),
        ({"multi_hot": [1] * 25 + [1025]}, "data.multi_hot gives column cat_25 1025 ids; it can have 1 to 1024"),
        ({"multi_hot": "mlprf"}, "data.multi_hot = 'mlprf' is neither mlperf nor numbers such as 3,2,1"),
        ({"multi_hot": "3,x"}, "data.multi_hot = '3,x' is neither mlperf nor numbers such as 3,2,1"),
        ({"multi_hot": [1.5] * 26}, "multi_hot.0 = 1.5 is rejected"),
        ({"multi_hot": 3}, "multi_hot = 3 is rejected"),
        (
            {"multi_hot_distribution": "zipf"},
            "multi_hot_distribution = \"zipf\" is rejected: input should be 'uniform' or",
        ),
        ({"multi_hot_distribution": "pareto"}, "data.multi_hot_distribution is pareto and data.multi_hot is empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_tree(DataConfig, {"table_rows": [9] * 26, **settings})
    assert complaint in str(caught.value)


def test_a_column_of_several_values_is_not_widened() -> None:
    schema = {
        "name": "shop",
        "separator": ",",
        "columns": [
            {"name": "tags", "role": "category", "kind": "int", "rows": 9, "inner_separator": "|", "max_values": 2}
        ],
    }
    with pytest.raises(ConfigError, match=r"column tags holds several values already; leave out data\.multi_hot"):
        from_tree(DataConfig, {"row_schema": schema, "multi_hot": [2]})


# Archives.


@pytest.fixture(scope="module")
def prepared_dir(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made = dict[tuple[Any, ...], Path]()

    def make(rule: MultiHot | None = WIDE, store: Any = "npy", seed: int | None = None) -> Path:
        if (key := (rule, store, seed)) not in made:
            made[key] = tmp_path_factory.mktemp("wide") / "out"
            splits = split_by_day(find_days(tiny_world_dir))
            prepare(PrepareJob(splits, CRITEO, made[key], store=store, seed=seed, part_bytes=50_000, multi_hot=rule))
        return made[key]

    return make


@pytest.mark.parametrize("access", ["mapped", "memory", "streamed"])
@every_distribution
def test_law_encode(
    tiny_world_dir: Path, prepared_dir: Callable[..., Path], access: Access, distribution: Distribution
) -> None:
    """Each split, batch by batch: raw text, one-hot npy and Parquet, all widened on the fly, and archives."""
    rule = MultiHot(WIDE.sizes, distribution)
    facts = read_facts(prepared_dir(rule))
    assert facts.multi_hot == rule
    tables = MultiHotTables(rule, facts.table_rows)
    vocabulary = Vocabulary(prepared_dir(rule) / "vocabulary")
    text = TextReader(CRITEO, facts.encoding, facts.table_rows, "fail", vocabulary)
    splits, stored = split_by_day(find_days(tiny_world_dir)), Prepared(prepared_dir(rule), access)
    narrow = [Prepared(prepared_dir(None, store), access) for store in ("npy", "parquet")]
    for name in SPLIT_NAMES:
        streams = [
            Stream(MultiHotReader(text, tables), splits.of(name), Order(137)),
            *(Stream(MultiHotReader(one.reader, tables), one.segments(name), Order(137)) for one in narrow),
        ]
        for stream in streams:
            with stream, Stream(stored.reader, stored.segments(name), Order(137, block_extent=64)) as expected:
                assert_same_rows(stream, expected)
    for one in (stored, *narrow):
        one.close()
    splits.close()


def test_law_resume(prepared_dir: Callable[..., Path]) -> None:
    prepared = Prepared(prepared_dir())
    order = Order(300, seed=3, epochs=2, num_lanes=7, block_extent=40)
    assert_resumes_everywhere(lambda start: Stream(prepared.reader, prepared.segments("train"), order, start=start))
    prepared.close()


@pytest.mark.parametrize("seed", [None, 4])
def test_numpy_loads_the_archives(prepared_dir: Callable[..., Path], seed: int | None) -> None:
    """Uncompressed, sound by its own checksums, int32 (N, h); shuffled as one-hot rows are."""
    directory, narrow = prepared_dir(seed=seed), prepared_dir(None, seed=seed)
    manifest = json.loads((directory / "manifest.json").read_text())
    assert {f"day_{day}_sparse_multi_hot.npz" for day in range(3)} < manifest["files"].keys()
    assert not list(directory.glob("*_sparse.npy"))
    published = _published_tables(WIDE, tuple(manifest["table_rows"]))
    for day in range(3):
        path = directory / f"day_{day}_sparse_multi_hot.npz"
        one_hot = np.load(narrow / f"day_{day}_sparse.npy")
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
        with np.load(path) as loaded:
            assert loaded.files == [str(i) for i in range(26)]
            for i, table in enumerate(published):
                assert loaded[str(i)].dtype == np.int32
                np.testing.assert_array_equal(loaded[str(i)], table[one_hot[:, i]])
        for kind in ("dense", "labels"):
            name = f"day_{day}_{kind}.npy"
            assert (directory / name).read_bytes() == (narrow / name).read_bytes()


def test_members_lie_where_torchrecs_loader_looks(prepared_dir: Callable[..., Path]) -> None:
    """It takes the header for as long as `numpy.savez` makes it: 20 bytes behind the name."""
    path = prepared_dir() / "day_0_sparse_multi_hot.npz"
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            file.seek(member.header_offset + len(member.FileHeader()) + 20)
            assert file.read(6) == np.lib.format.MAGIC_PREFIX


def test_a_run_that_is_stopped_anywhere_goes_on_to_the_same_bytes(
    tiny_world_dir: Path, prepared_dir: Callable[..., Path], tmp_path: Path
) -> None:
    splits, stops = split_by_day(find_days(tiny_world_dir)), list[str]()
    while not (tmp_path / "out").exists():
        calls = list[str]()

        def stop_soon(stage: str, done: int, total: int, calls: list[str] = calls) -> None:
            calls.append(stage)
            if calls.count(stage) > 1 and done < total:
                raise KeyboardInterrupt

        job = PrepareJob(splits, CRITEO, tmp_path / "out", seed=4, part_bytes=300_000, jobs=1, multi_hot=WIDE)
        object.__setattr__(job, "on_progress", stop_soon)
        try:
            prepare(job)
        except KeyboardInterrupt:
            stops.append(calls[-1])
    assert {"encode", "pack"} <= set(stops)
    whole, stopped = (json.loads((d / "manifest.json").read_text()) for d in (prepared_dir(seed=4), tmp_path / "out"))
    assert stopped["files"] == whole["files"]
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_a_missing_truncated_or_altered_archive_is_named(tmp_path: Path, tiny_world_dir: Path) -> None:
    splits = split_by_day(find_days(tiny_world_dir))
    prepare(PrepareJob(splits, CRITEO, tmp_path / "out", multi_hot=WIDE))
    path = tmp_path / "out" / "day_1_sparse_multi_hot.npz"
    content = path.read_bytes()
    altered = bytearray(content)
    altered[len(content) // 2] ^= 1
    path.write_bytes(altered)
    Prepared(tmp_path / "out", verify="never").close()  # sizes alone do not tell
    with pytest.raises(UserError, match=f"{path} is not the file"):
        Prepared(tmp_path / "out", verify="once")
    path.write_bytes(content[:-8])
    with pytest.raises(UserError, match=f"{path} is not the file"):
        Prepared(tmp_path / "out")
    path.unlink()
    with pytest.raises(UserError, match=f"{path} is missing"):
        Prepared(tmp_path / "out")


def _write_archive(directory: Path, num_rows: int = 10) -> Path:
    columns = Columns(
        np.ones((num_rows, 2), np.float32), np.zeros((num_rows, 2), np.int64), np.ones(num_rows, np.float32)
    )
    file = MultiHotFile(directory, "x", num_rows, NpyLayout(2, 2), MultiHotTables(MultiHot((2, 3)), (5, 6)))
    file.write(0, columns)
    file.finish()
    file.close()
    return directory / "x_sparse_multi_hot.npz"


def test_archives_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    path = _write_archive(tmp_path)
    content = path.read_bytes()
    MultiHotTable(tmp_path, "x", (2, 3), NpyLayout(2, 5)).close()
    with pytest.raises(
        DataError, match=r"holds int32 of shape \(10, 3\); rows of 4 int32 were announced; prepare the data anew"
    ):
        MultiHotTable(tmp_path, "x", (2, 4), NpyLayout(2, 5))
    ids = np.zeros((10, 2), np.int32)
    np.savez_compressed(path, **{"0": ids, "1": ids})  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match=r"is not a complete archive of arrays: 0\.npy is compressed, and cannot be mapped"
    ):
        MultiHotTable(tmp_path, "x", (2, 2), NpyLayout(2, 5))
    np.savez(path, a=ids)
    with pytest.raises(DataError, match=r"is not a complete archive of arrays: its members are a\.npy, …"):
        MultiHotTable(tmp_path, "x", (2,), NpyLayout(2, 5))
    np.savez(path, **{"0": ids.astype(np.int64)})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"holds int64 of shape \(10, 2\); rows of 2 int32 were announced"):
        MultiHotTable(tmp_path, "x", (2,), NpyLayout(2, 5))
    for length in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match="is not a complete archive of arrays: "):
            MultiHotTable(tmp_path, "x", (2, 3), NpyLayout(2, 5))
    path.unlink()
    with pytest.raises(DataError, match=f"{path} is missing; prepare the data anew"):
        MultiHotTable(tmp_path, "x", (2, 3), NpyLayout(2, 5))


def test_archives_beyond_the_limits_of_the_first_zip_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit lowered: a member of 2 GiB, and what lies behind it, needs wider fields."""
    small = tmp_path / "small"
    small.mkdir()
    _write_archive(small)
    expected = MultiHotTable(small, "x", (2, 3), NpyLayout(2, 5))
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    path = _write_archive(tmp_path)
    monkeypatch.undo()
    assert path.stat().st_size > expected.path.stat().st_size
    np.testing.assert_array_equal(
        MultiHotTable(tmp_path, "x", (2, 3), NpyLayout(2, 5)).read(0, 10).ids, expected.read(0, 10).ids
    )
    with np.load(path) as loaded:
        np.testing.assert_array_equal(loaded["1"], expected.read(0, 10).ids[:, 2:])


@pytest.mark.parametrize("access", ["mapped", "memory", "streamed"])
def test_what_numpy_saves_can_be_read(tmp_path: Path, access: Access) -> None:
    path = _write_archive(tmp_path)
    arrays = {str(i): np.arange(10 * size, dtype=np.int32).reshape(10, size) for i, size in enumerate((2, 3))}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    table = MultiHotTable(tmp_path, "x", (2, 3), NpyLayout(2, 5), access)
    np.testing.assert_array_equal(table.read(4, 9).ids, np.concatenate(list(arrays.values()), axis=1)[4:9])
    table.close()


def test_parquet_holds_no_archives(tiny_world_dir: Path, tmp_path: Path) -> None:
    splits = split_by_day(find_days(tiny_world_dir))
    with pytest.raises(ConfigError, match=r"^--multi-hot writes npz archives, and --format is parquet: leave one"):
        PrepareJob(splits, CRITEO, tmp_path / "out", store="parquet", multi_hot=WIDE)
