"""From a CSV to a model: everything is chosen, said and kept."""

import tomllib
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

import recmill as rm
from recmill.cli.main import main
from recmill.data.infer.schema import infer_schema
from recmill.data.logs.raw_format import AskedColumns
from recmill.errors import ConfigError, DataError, RunError
from recmill.recipes.auto import choose
from recmill.settings.columns import Schema, schema_from_tree

SHORT = {"stop.max_epochs": 1, "model.top": [16, 1]}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("auto") / "shop"
    rm.synth("shop", out, rows=4_000, seed=1)
    return out / "table.csv"


@pytest.fixture(scope="module")
def trained(shop: Path) -> rm.Run:
    return rm.train("auto", data=shop, run=shop.parent.parent / "run", overrides=SHORT)


def test_a_csv_becomes_a_model_with_its_baselines(trained: rm.Run) -> None:
    results = trained.results
    assert set(results.baselines) == {"click_rate", "logistic_regression"}
    assert results.baselines["click_rate"].auroc == 0.5
    assert results.test.num_rows == 400
    assert "standard_error" in results.plain["differences"]["logistic_regression"]["auroc"]


def test_what_was_chosen_is_in_the_settings(trained: rm.Run) -> None:
    chosen = {choice.key: choice.value for choice in choose(3_200)}
    assert trained.config.to_tree()["data"]["global_batch"] == chosen["data.global_batch"]
    assert trained.config.to_tree()["stop"]["max_epochs"] == 1  # an override comes before a choice


def test_the_model_predicts_raw_rows(trained: rm.Run, shop: Path) -> None:
    model = rm.load(trained.dir)
    from_file = model.predict(shop)
    assert from_file.shape == (4_000,)
    from_frame = model.predict(pl.read_csv(shop).head(50))
    np.testing.assert_allclose(from_file[:50], from_frame, atol=1e-6)  # another batch, rounded otherwise
    frame = pl.read_csv(shop).head(50)
    np.testing.assert_array_equal(model.predict(frame.select(frame.columns[::-1])), from_frame)


def test_json_lines_become_the_model_of_the_csv(trained: rm.Run, shop: Path, tmp_path: Path) -> None:
    pl.read_csv(shop).write_ndjson(tmp_path / "table.jsonl")
    run = rm.train("auto", data=tmp_path / "table.jsonl", run=tmp_path / "run", overrides=SHORT)
    assert run.results.test == trained.results.test
    np.testing.assert_array_equal(
        rm.load(run.dir).predict(tmp_path / "table.jsonl"), rm.load(trained.dir).predict(shop)
    )


def test_a_finished_run_is_not_replaced_unasked(trained: rm.Run, shop: Path) -> None:
    before = (trained.dir / "results.json").read_bytes()
    with pytest.raises(RunError, match="not empty"):
        rm.train("auto", data=shop, run=trained.dir, overrides=SHORT)
    assert (trained.dir / "results.json").read_bytes() == before


def test_the_same_command_goes_on_with_a_finished_run(trained: rm.Run, shop: Path) -> None:
    again = rm.train("auto", data=shop, run=trained.dir, resume=True)
    assert again.results.step == trained.results.step


def test_a_label_that_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    rows = "".join(f"{i % 2},{i % 3 // 2},{i % 7}\n" for i in range(300))
    (tmp_path / "t.csv").write_text("a,b,c\n" + rows)
    with pytest.raises(DataError, match="name the label with --label"):
        rm.train("auto", data=tmp_path / "t.csv", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_auto_needs_data_and_only_auto_takes_a_label(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data"):
        rm.train("auto", run=tmp_path / "run")
    with pytest.raises(ConfigError, match="--label x is for the recipe auto"):
        rm.train("demo", data=tmp_path, run=tmp_path / "run", label="x")


@pytest.mark.parametrize("num_rows", [10, 500, 3_000, 20_000, 80_000, 900_000, 10_000_000])
def test_choices_fit_together_for_every_size(num_rows: int) -> None:
    chosen = {choice.key: choice.value for choice in choose(num_rows)}
    config = rm.config("auto", overrides=chosen)
    assert config.data.global_batch <= max(32, num_rows)
    assert config.resolved_schedule.warmup_steps < config.resolved_schedule.decay_start_step or num_rows < 1000
    assert 0 < config.average.from_step <= config.stop.max_steps


def test_times_become_features_of_training_and_prediction(tmp_path: Path) -> None:
    """The label depends on the hour alone: who reads it finds it."""
    rows = np.random.default_rng(3)
    seconds = 1_700_000_000 + np.sort(rows.integers(0, 40 * 86400, 6_000))
    hours = seconds % 86400 // 3600
    frame = pl.DataFrame(
        {
            "seen": pl.Series(seconds * 1000, dtype=pl.Int64).cast(pl.Datetime("ms")),
            "price": rows.random(6_000).round(3),
            "clicked": (rows.random(6_000) < np.where(hours < 8, 0.9, 0.1)).astype(np.int64),
        }
    )
    frame.write_csv(tmp_path / "rows.csv")
    run = rm.train("auto", data=tmp_path / "rows.csv", run=tmp_path / "run", overrides={"stop.max_epochs": 3})
    assert (run.results.test.auroc or 0.0) > 0.8
    model = rm.load(run.dir)
    frame.select("price", "seen").write_parquet(tmp_path / "new.parquet")
    from_file = model.predict(tmp_path / "rows.csv")
    for others in (
        tmp_path / "new.parquet",
        frame.drop("clicked"),
        frame.select("seen", "price").to_dict(as_series=False),
    ):
        np.testing.assert_allclose(model.predict(others), from_file, atol=1e-6)
    late = hours >= 8
    assert from_file[late].max() < from_file[~late].min()
    by_time = rm.train(
        "auto",
        data=tmp_path / "rows.csv",
        run=tmp_path / "by-time",
        overrides={"stop.max_epochs": 1, "data.test_after": "2023-12-20"},
    )
    moment = (np.datetime64("2023-12-20") - np.datetime64("1970-01-01")) / np.timedelta64(1, "s")
    assert by_time.results.test.num_rows == int((seconds >= moment).sum())
    last_days = rm.train(
        "auto",
        data=tmp_path / "rows.csv",
        run=tmp_path / "last-days",
        overrides={"stop.max_epochs": 1, "data.holdout_days": 3},
    )
    assert last_days.results.test.num_rows == int((seconds // 86400 > seconds[-1] // 86400 - 3).sum())


def test_a_column_of_0_and_1_that_is_not_called_a_label_is_not_taken_for_one(tmp_path: Path) -> None:
    rows = "".join(f"{i % 2},{i % 7}\n" for i in range(300))
    (tmp_path / "t.csv").write_text("is_member,c\n" + rows)
    with pytest.raises(DataError, match="say so with --label is_member"):
        rm.train("auto", data=tmp_path / "t.csv", run=tmp_path / "run")


def test_words_for_yes_and_no_are_a_label(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = "".join(
        f"{i % 2};{c};{'Yes' if draw.random() < c / 8 else 'No'}\r\n"
        for i, c in enumerate(draw.integers(8, size=2_000))
    )
    (tmp_path / "t.csv").write_text("flag;c;bought\r\n" + rows)
    run = rm.train("auto", data=tmp_path / "t.csv", run=tmp_path / "run")
    assert run.results.test.auroc is not None
    assert run.results.test.auroc > 0.7


def test_several_processes_are_rejected_before_anything_is_written(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recipe auto trains in one process, and this run has 2"):
        rm.train("auto", data=shop, run=tmp_path / "run", procs=2)
    assert not (tmp_path / "run").exists()


def test_rows_in_any_order_train_the_model_of_the_sorted_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(5)
    seconds = 1_700_000_000 + draw.integers(0, 40 * 86400, 3_000)
    frame = pl.DataFrame(
        {
            "seen": pl.Series(seconds * 1000, dtype=pl.Int64).cast(pl.Datetime("ms")),
            "price": draw.random(3_000).round(3),
            "clicked": draw.integers(0, 2, 3_000),
        }
    )
    frame.write_csv(tmp_path / "any.csv")
    frame.sort("seen", maintain_order=True).write_csv(tmp_path / "sorted.csv")
    for changes in ({}, {"data.holdout_days": 4}):
        runs = [
            rm.train("auto", data=tmp_path / f"{name}.csv", run=tmp_path / f"{name}{len(changes)}", overrides=each)
            for name, each in (("any", {**SHORT, **changes}), ("sorted", {**SHORT, **changes}))
        ]
        assert runs[0].results.test == runs[1].results.test
        assert not list(runs[0].dir.glob(".sorted*"))
    words = ["train", "auto", "--data", str(tmp_path / "any.csv"), "--run", str(tmp_path / "told"), "--test-days", "4"]
    assert main([*words, "--set", "stop.max_epochs=1"]) == 0
    assert "auto: prepare.sort = seen: the 3,000 rows are not in the order of their times" in capsys.readouterr().err


def test_click_rates_are_left_out_where_most_values_are_new(tmp_path: Path) -> None:
    random, lines = Random(5), ["user,item,clicked"]
    for user in range(300):  # in the order of the users: those who validate have never been seen
        lines += [f"u{user},i{random.randrange(20)},{int(random.random() < 0.4)}" for _ in range(10)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    run = rm.train("auto", data=tmp_path / "log.csv", run=tmp_path / "run", overrides={"stop.max_steps": 5})
    assert getattr(run.config.model, "target_encoding_folds", None) == 0


def test_rows_of_numbers_only_become_a_model(tmp_path: Path) -> None:
    random, lines = Random(6), ["a,b,clicked"]
    lines += [f"{random.random():.4f},{random.gauss(0, 1):.4f},{int(random.random() < 0.4)}" for _ in range(500)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    run = rm.train("auto", data=tmp_path / "log.csv", run=tmp_path / "run", overrides={"stop.max_steps": 5})
    assert run.results.test.num_rows == 50


@pytest.mark.parametrize(
    ("label", "positive"),
    [("rating >= 4", ">= 4"), ("rating=5", 5.0), ("rating = 4, 5", (4.0, 5.0)), ("event = buy, cart", ("buy", "cart"))],
)
def test_a_label_may_say_what_is_positive(label: str, positive: object, tmp_path: Path) -> None:
    random = Random(7)
    rows = [(random.randrange(1, 6), random.choice(("buy", "cart", "view")), random.choice("abc")) for _ in range(600)]
    csv = tmp_path / "log.csv"
    csv.write_text("rating,event,shop\n" + "".join(f"{rating},{event},{shop}\n" for rating, event, shop in rows))
    found = inferred(csv, label)
    assert found.of_role("label")[0].positive == positive
    parquet = tmp_path / "log.parquet"
    pl.read_csv(csv).write_parquet(parquet)
    assert inferred(parquet, label).of_role("label")[0].positive == positive


def inferred(path: Path, label: str) -> Schema:
    text = infer_schema([path], name="log", asked=AskedColumns(label=label)).text
    return schema_from_tree(tomllib.loads(text), "log")
