"""Runs keep the texts of string columns, and show them; without them they show hashes; nothing else changes."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash

from recmill.cli.main import main
from recmill.data.values.values_file import read_known
from recmill.files import VALUES
from tests.data.shop import write_shop
from tests.laws.kill import model_bytes

CITIES = {"Rome", "Oslo", "Lima", "Bonn"}
SMALL = ("stop.max_steps=4", "data.global_batch=64", "data.holdout_frac=0.1", "baselines.enabled=false")


def recmill(*words: str | Path) -> None:
    assert main([str(word) for word in words]) == 0


def train(tmp_path: Path, run: str, *settings: str, data: str = "shop.csv", schema: bool = True) -> Path:
    words = [word for setting in settings for word in ("--set", setting)]
    given = ("--schema", tmp_path / "shop.toml") if schema else ()
    recmill("train", "criteo-small", "--data", tmp_path / data, *given, "--run", tmp_path / run, *words)
    return tmp_path / run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write_shop(tmp_path / "shop.csv")
    recmill("schema", "infer", tmp_path / "shop.csv", "--label", "clicked", "--out", tmp_path / "shop.toml")
    return tmp_path


def test_the_texts_of_a_run_on_raw_rows(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(shop, "run", *SMALL)
    known = read_known(run / VALUES)
    assert set(known["city"].values()) == {city.encode() for city in CITIES}
    assert known["city"] == {xxhash.xxh64_intdigest(text): text for text in known["city"].values()}
    capsys.readouterr()
    recmill("checkpoint", "extract", run, "city", "--out", shop / "city.npy")
    assert "has those of 4 texts of values.parquet" in capsys.readouterr().out
    told = pq.read_table(shop / "city.ids.parquet").to_pylist()
    num_rows = len(np.load(shop / "city.npy"))
    encoded = {line["value"]: line["id"] for line in told if line["meaning"] == "value"}
    assert encoded == {city: xxhash.xxh64_intdigest(city.encode()) % (num_rows - 1) + 1 for city in CITIES}

    without = train(shop, "without", *SMALL, "data.keep_values=0")
    assert not (without / VALUES).exists()
    assert model_bytes(without) == model_bytes(run), "training does not depend on it"
    recmill("checkpoint", "extract", without, "city", "--out", shop / "without.npy")
    assert "ids were made by modulo, from which values cannot be recovered" in capsys.readouterr().out
    assert not (shop / "without.ids.parquet").exists()
    one = train(shop, "one", *SMALL, "data.keep_values=1")
    assert {name: len(own) for name, own in read_known(one / VALUES).items()} == {"order": 1, "city": 1}


def test_a_run_without_the_file_goes_on_and_writes_it(shop: Path) -> None:
    """As runs of older versions do: their settings do not know the setting, either."""
    run = train(shop, "run", *SMALL)
    (run / VALUES).unlink()
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(
        "".join(f"{x}\n" for x in config.splitlines() if not x.startswith(("keep_values", "# recmill")))
    )
    recmill("train", "--resume", "--run", run, "--set", "stop.max_steps=6", "--set", "data.keep_values=3")
    assert len(read_known(run / VALUES)["city"]) == 3
    assert tomllib.loads((run / "config.toml").read_text())["data"]["keep_values"] == 3
    assert json.loads((run / "results.json").read_text())["step"] == 6


def test_the_texts_of_prepared_rows(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("prepare", "--data", shop / "shop.csv", "--schema", shop / "shop.toml", "--set", "data.holdout_frac=0.1")
    recmill(*words, "--out", shop / "rows")
    known = read_known(shop / "rows" / VALUES)
    assert set(known["city"].values()) == {city.encode() for city in CITIES}
    files = json.loads((shop / "rows" / "manifest.json").read_text())["files"]
    assert VALUES in files
    recmill(*words, "--out", shop / "bare", "--set", "data.keep_values=0")
    assert files.keys() - json.loads((shop / "bare" / "manifest.json").read_text())["files"].keys() == {VALUES}
    settings = ("stop.max_steps=4", "data.global_batch=64", "baselines.enabled=false")
    run = train(shop, "run", *settings, data="rows", schema=False)
    assert read_known(run / VALUES) == known
    capsys.readouterr()
    recmill("checkpoint", "extract", run, "city", "--out", shop / "city.npy")
    assert "4 of 4 strings have their text there" in capsys.readouterr().out
    told = pq.read_table(shop / "city.ids.parquet").to_pydict()
    assert {*told["value"]} == {None, *CITIES}
    bare = train(shop, "bare_run", *settings, data="bare", schema=False)
    assert not (bare / VALUES).exists()
    assert model_bytes(bare) == model_bytes(run)
    recmill("checkpoint", "extract", bare, "city", "--out", shop / "bare.npy")
    assert "a vocabulary keeps hashes (xxh64) and not the text" in capsys.readouterr().out


def test_slices_show_texts_without_their_control_characters(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (shop / "shop.csv").read_text().replace("Rome", "Ro\x1bme")
    (shop / "shop.csv").write_text(text)
    run = train(shop, "run", *SMALL)
    capsys.readouterr()
    recmill("evaluate", run, "--by", "city")
    told = capsys.readouterr().out
    assert "\x1b" not in told
    for city in (r"Ro\x1bme", "Oslo", "Lima", "Bonn"):
        assert f"\n{city} " in told
