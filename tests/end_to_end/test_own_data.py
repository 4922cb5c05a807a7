"""A log that is not Criteo's, from nothing but its file: schema inferred, rows audited, model trained and judged.

Once as CSV, and once as Parquet: the same rows end in the same model.
"""

import csv
import json
import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recmill.cli.main import main
from recmill.metrics import ClickMetrics, ClickResult
from recmill.settings.schemas import find_schema
from tests.laws.kill import model_bytes
from tests.laws.learns import assert_learns

NUM_ROWS = 24_000
CITIES = {"Oslo": 1.2, "Lima": -1.0, "Bath": 0.4, "Rome": -0.6}
QUOTED_CITY = '"Washington, ""D.C."""'
TAGS = {"sale": 1.5, "new": 0.8, "used": -1.5, "rare": 0.3, "heavy": -0.8, "local": 0.0}
TRAINING = ("data.global_batch=128", "tables.kind=adagrad", "tables.lr=0.05", "stop.max_epochs=2")
# text is cut into blocks by its bytes and Parquet by its rows: of one block for all, the order is the same
ONE_BLOCK = ("data.num_lanes=1", "data.block_bytes=10000000", "data.block_rows=1000000")


def write_log(path: Path) -> list[float]:
    """Clicks that depend on the city, all of the tags, and the price; the logit of every row."""
    random, logits = Random(4), list[float]()
    lines = ["clicked,user_id,price,visits,city,tags,site"]
    for _ in range(NUM_ROWS):
        price, city = random.expovariate(0.02), random.choice(list(CITIES))
        tags = random.sample(list(TAGS), random.randrange(5))
        logit = CITIES[city] + sum(TAGS[tag] for tag in tags) - 0.5 * math.log(price + 3) + 1.5
        shown_city = QUOTED_CITY if city == "Oslo" and random.random() < 0.05 else city
        logit = -3.0 if shown_city == QUOTED_CITY else logit
        clicked = int(random.random() < 1 / (1 + math.exp(-logit)))
        visits = random.choice(("", str(random.randrange(300))))
        lines.append(f"{clicked},{random.randrange(10**6)},{price:.2f},{visits},{shown_city},{'|'.join(tags)},shop")
        logits.append(logit)
    path.write_text("\n".join(lines) + "\n")
    return logits


def best_auroc(logits: list[float], path: Path) -> float:
    """What the rule itself scores on the last tenth of the rows."""
    first = NUM_ROWS - NUM_ROWS // 10
    labels = [float(line[0]) for line in path.read_text().splitlines()[1:]]
    metrics = ClickMetrics()
    metrics.update(np.array(logits[first:], np.float32), np.array(labels[first:], np.float32))
    auroc = metrics.result().auroc
    assert auroc is not None
    return auroc


def to_parquet(log: Path, path: Path) -> None:
    """The same rows with types of their own: numbers, nulls, a dictionary of cities and lists of tags."""
    with log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pa.table(
        {
            "clicked": pa.array([int(row["clicked"]) for row in rows], pa.int8()),
            "user_id": pa.array([int(row["user_id"]) for row in rows], pa.int32()),
            "price": [float(row["price"]) for row in rows],
            "visits": pa.array([int(row["visits"]) if row["visits"] else None for row in rows], pa.int16()),
            "city": pa.array([row["city"] for row in rows]).dictionary_encode(),
            "tags": [row["tags"].split("|") if row["tags"] else None for row in rows],
            "site": [row["site"] for row in rows],
        }
    )
    pq.write_table(table, path, row_group_size=5000)


def infer_schema(log: Path, schema_path: Path) -> None:
    """By the command, and with the one change that a person would make."""
    assert main(["schema", "infer", str(log), "--out", str(schema_path)]) == 0
    found = {column.name: (column.role, column.kind) for column in find_schema(str(schema_path)).columns}
    assert found == {
        "clicked": ("label", "int"),
        "user_id": ("category", "int"),
        "price": ("dense", "float"),
        "visits": ("dense", "int"),
        "city": ("category", "string"),
        "tags": ("category", "string"),
        "site": ("ignored", None),
    }
    # the note beside user_id says that almost all values differ: the one thing a person would change
    text = schema_path.read_text()
    start = text.index('{ name = "user_id"')
    schema_path.write_text(text[:start] + '{ name = "user_id", role = "ignored" },' + text[text.index("\n", start) :])


def audit_log(log: Path, schema_path: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The report of an audit that finds nothing against training."""
    capfd.readouterr()
    assert main(["audit", "--data", str(log), "--schema", str(schema_path), "--json"]) == 0
    report: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert (report["ok"], report["reasons"], report["bad"]["count"]) == (True, [], 0)
    assert (report["train"]["num_rows"], report["test"]["num_rows"]) == (NUM_ROWS, 0)
    assert [column["name"] for column in report["dense"]] == ["price", "visits"]
    assert report["dense"][1]["missing_frac"] == pytest.approx(0.5, abs=0.02)
    assert [column["num_distinct"] for column in report["categories"]] == [5, 6, 6, 6, 6]  # cities, and tags in 4 slots
    return report


def train(log: Path, schema_path: Path, run_dir: Path) -> dict[str, Any]:
    """What the run says of its model."""
    words = ["train", "demo", "--schema", str(schema_path), "--data", str(log), "--run", str(run_dir)]
    for setting in ("data.holdout_frac=0.2", *TRAINING, *ONE_BLOCK):
        words += ["--set", setting]
    assert main(words) == 0
    results: dict[str, Any] = json.loads((run_dir / "results.json").read_text())
    return results


def test_a_log_of_ones_own_from_a_file_to_a_judged_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, schema_path, run_dir = tmp_path / "log.csv", tmp_path / "shop.toml", tmp_path / "run"
    best = best_auroc(write_log(log), log)
    infer_schema(log, schema_path)
    audited = audit_log(log, schema_path, capfd)
    results = train(log, schema_path, run_dir)
    schema_path.unlink()
    assert results["rows"] == 2 * 0.8 * NUM_ROWS
    assert_learns(
        ClickResult(**{name: results["test"][name] for name in ClickResult.__dataclass_fields__}),
        best_auroc=best,
        within=0.03,
    )
    for split in ("validation", "test"):
        capfd.readouterr()
        assert main(["evaluate", str(run_dir), "--split", split, "--weights", "last", "--json"]) == 0
        told = json.loads(capfd.readouterr().out)
        assert told == {"split": split, "weights": f"last weights (step {results['step']})", **results[split]}

    parquet, schema_path, parquet_run = tmp_path / "log.parquet", tmp_path / "shop.toml", tmp_path / "parquet_run"
    to_parquet(log, parquet)
    infer_schema(parquet, schema_path)
    assert audit_log(parquet, schema_path, capfd) == audited
    of_parquet = train(parquet, schema_path, parquet_run)
    assert (of_parquet["validation"], of_parquet["test"]) == (results["validation"], results["test"])
    assert model_bytes(parquet_run) == model_bytes(run_dir)
    capfd.readouterr()
    assert main(["evaluate", str(parquet_run), "--weights", "last", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {**told, **results["test"]}
