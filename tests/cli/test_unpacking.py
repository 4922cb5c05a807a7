"""Packed files that unpack to more than is allowed are rejected by every verb that reads them."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import recmill as rm
from recmill.cli.main import main
from recmill.errors import DataError

ROWS = 40_000
LIMIT = 100_000
PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
SCHEMA = """
header = true
separator = ","
columns = [
    { name = "clicked", role = "label", kind = "int" },
    { name = "seen", role = "time", kind = "time", time_format = "epoch_s" },
    { name = "price", role = "dense", kind = "float" },
    { name = "shop", role = "category", kind = "string", rows = 10 },
]
"""
TINY = ("--set", "model.embedding_dim=4", "--set", "model.bottom=[4]", "--set", "stop.max_steps=1")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that repeat themselves: some hundred bytes that become a megabyte; and events likewise."""
    place = tmp_path_factory.mktemp("shop")
    (place / "shop.toml").write_text(SCHEMA)
    rows = b"clicked,seen,price,shop\n" + b"0,1700000000,1.5,a\n1,1700000001,2.5,b\n" * (ROWS // 2)
    events = b"user,item,time\n" + b"".join(b"%d,%d,%d\n" % (n // 20, n % 20, n) for n in range(ROWS))
    for suffix, pack in PACKERS.items():
        (place / f"rows.csv{suffix}").write_bytes(pack(rows))
        (place / f"events.csv{suffix}").write_bytes(pack(events))
    return place


COMMANDS = {
    "train": "train demo --data {rows} --schema {schema} --run {out} --set data.holdout_frac=0.1 {limit}",
    "train by time": "train demo --data {rows} --schema {schema} --run {out} --test-days 1 {limit}",
    "train auto": "train auto --label clicked --data {rows} --run {out} {limit}",
    "prepare": "prepare --data {rows} --schema {schema} --out {out} --set data.holdout_frac=0.1 {limit}",
    "prepare events": "prepare --preset events --data {events} --out {out} {limit}",
    "audit": "audit --data {rows} --schema {schema} {limit}",
    "audit of a split": "audit --data {rows} --schema {schema} --set data.holdout_frac=0.1 {limit}",
    "audit without a schema": "audit --data {rows} {limit}",
    "schema": "schema infer {rows} {option}",
    "sort": "sort {rows} --schema {schema} --out {out} {option}",
    "split": "split {rows} --parts 2 --rows 10 --out {out} {option}",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_small_bomb_is_rejected_by_name(
    name: str, shop: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    suffix = list(PACKERS)[len(name) % 2]
    words = COMMANDS[name].format(
        rows=shop / f"rows.csv{suffix}",
        events=shop / f"events.csv{suffix}",
        schema=shop / "shop.toml",
        out=tmp_path / "out",
        limit=f"--set data.max_unpacked_bytes={LIMIT}",
        option=f"--max-unpacked-bytes {LIMIT}",
    )
    assert main(words.split()) == 2
    told = capfd.readouterr().err
    what = "events" if "events" in name else "rows"
    assert f"{what}.csv{suffix} unpacks to more than data.max_unpacked_bytes = {LIMIT:,}" in told
    assert "internal error" not in told
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_predictions_keep_to_the_limit_of_the_run_or_of_the_option(
    shop: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, schema, run = (str(path) for path in (shop / "rows.csv.gz", shop / "shop.toml", tmp_path / "run"))
    small = tmp_path / "small.csv.gz"
    small.write_bytes(gzip.compress(gzip.decompress((shop / "rows.csv.gz").read_bytes())[: LIMIT // 2 - 3]))
    words = ["train", "demo", "--data", str(small), "--schema", schema, "--run", run, *TINY]
    limit = [
        "--set",
        "data.holdout_frac=0.1",
        "--set",
        'data.split="order"',
        "--set",
        f"data.max_unpacked_bytes={LIMIT}",
    ]
    assert main([*words, *limit, "--bad-rows", "skip"]) == 0
    out = str(tmp_path / "out.csv")
    assert main(["predict", run, "--data", rows, "--out", out]) == 2
    assert "unpacks to more than data.max_unpacked_bytes = 100,000" in capfd.readouterr().err
    assert main(["evaluate", run, "--data", rows]) == 2
    assert "unpacks to more than data.max_unpacked_bytes = 100,000" in capfd.readouterr().err
    assert main(["predict", run, "--data", rows, "--out", out, "--max-unpacked-bytes", str(10 * ROWS * 10)]) == 0


def test_python_has_the_limit_too(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"events\.csv\.gz unpacks to more than data\.max_unpacked_bytes = 9"):
        rm.prepare_events(shop / "events.csv.gz", out=tmp_path / "out", max_unpacked_bytes=9)
    facts = rm.prepare_events(shop / "events.csv.gz", out=tmp_path / "out", max_unpacked_bytes=10_000_000)
    assert facts["events"] == ROWS
