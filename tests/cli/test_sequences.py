"""Sequences on the command line, and what it says when something is wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from recmill.cli.main import main
from recmill.data.events.prepare import open_prepared_sequences
from tests.cli.command import train_sasrec

TINY = [
    "model.embedding_dim=8",
    "threads=1",
    "stop.max_steps=20",
    "stop.patience=0",
    "data.max_length=8",
    "loss.num_sampled=30",
]
SETS = [word for assignment in TINY for word in ("--set", assignment)]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which all tests of the module read."""
    return train_sasrec(tmp_path_factory.mktemp("sequences"), *SETS)


@pytest.fixture
def own_run_dir(run_dir: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, for a test that changes it or tries to."""
    return Path(shutil.copytree(run_dir, tmp_path / "own_run"))


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_what_a_run_printed_is_what_evaluate_prints(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads((run_dir / "results.json").read_text())
    for weights, expected in (("last", results["test"]), ("best", results["test_of_best"])):
        status, out, _ = told(capsys, "evaluate", run_dir, "--weights", weights, "--json")
        assert status == 0
        verdict = json.loads(out)
        baselines = verdict.pop("baselines")
        assert baselines.keys() == {"popularity", "markov", "network"}
        assert baselines["network"]["weights"] == weights
        assert verdict.pop("weights").startswith(f"{weights} weights (step ")
        del verdict["data"]
        assert verdict == {"split": "test", **expected}
    assert baselines == results["baselines"], "the network is that of the best weights"
    assert told(capsys, "evaluate", run_dir)[1].count("ndcg@10") == 4
    status, out, _ = told(capsys, "evaluate", run_dir, "--best", "--split", "validation", "--json")
    assert json.loads(out)["ndcg@10"] == results["best"]["ndcg@10"]


def test_the_weights_that_are_named_are_evaluated(
    run_dir: Path, own_run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "train", "--run", own_run_dir, "--resume", "--set", "stop.max_steps=60")
    scores = [
        json.loads(told(capsys, "evaluate", own_run_dir, "--json", *words)[1])["ndcg@10"]
        for words in (("--weights", "last"), ("--model", own_run_dir / "model"), ("--model", run_dir / "model"))
    ]
    assert scores[0] == scores[1] != scores[2]
    assert scores[2] == json.loads(told(capsys, "evaluate", run_dir, "--weights", "last", "--json")[1])["ndcg@10"]
    status, _, err = told(capsys, "evaluate", own_run_dir, "--model", tmp_path / "nowhere")
    assert (status, "nowhere does not exist" in err) == (2, True)


def judged(capsys: pytest.CaptureFixture[str], run_dir: Path, *words: str) -> dict[str, Any]:
    """The last weights and what counting alone would do, as `evaluate` tells it."""
    verdict: dict[str, Any] = json.loads(told(capsys, "evaluate", run_dir, "--weights", "last", "--json", *words)[1])
    baselines = verdict.pop("baselines")
    del verdict["weights"], verdict["data"]
    return {"test": verdict, "popularity": baselines["popularity"], "markov": baselines["markov"]}


def recorded(run_dir: Path) -> dict[str, Any]:
    """The same, as `results.json` has it."""
    results = json.loads((run_dir / "results.json").read_text())
    baselines = results["baselines"]
    test = {"split": "test", **results["test"]}
    return {"test": test, "popularity": baselines["popularity"], "markov": baselines["markov"]}


@pytest.mark.parametrize("protocol", ["candidates=popularity", "candidates=uniform", "filter_seen=false"])
def test_weights_are_judged_under_another_protocol_as_if_trained_with_it(
    protocol: str, run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ["--set", f"protocol.{protocol}", *(["--set", "protocol.num_negatives=20"] if "cand" in protocol else [])]
    other = tmp_path / "run"
    assert told(capsys, "train", "sasrec", "--data", run_dir.parent / "data", "--run", other, *SETS, *sets)[0] == 0
    assert judged(capsys, run_dir, *sets) == recorded(other)
    back = "protocol.candidates=full" if "cand" in protocol else "protocol.filter_seen=true"
    assert judged(capsys, other, "--set", back) == recorded(run_dir)


def test_a_model_is_not_changed_by_judging_it(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = told(capsys, "evaluate", run_dir, "--set", "model.transition_weight=0")
    assert (status, "a run is evaluated with the settings it was trained with" in err) == (2, True)
    status, out, _ = told(capsys, "evaluate", run_dir, "--set", "data.max_test_users=9")
    assert (status, "of 9 users, a part of them" in out, "markov" in out) == (0, True, True)
    status, _, err = told(capsys, "evaluate", run_dir, "--set", "data.max_validation_users=9")
    assert (status, "data.max_test_…" in err) == (2, True)
    status, _, err = told(capsys, "evaluate", run_dir, "--set", "protocol.candidate=full")
    assert (status, "protocol.candidate = " in err) == (2, True)


def test_a_run_goes_on_with_more_steps_and_cannot_become_another(
    own_run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = told(capsys, "train", "--run", own_run_dir, "--resume", "--set", "stop.max_steps=22")
    assert (status, "in 22 steps" in out) == (0, True)
    assert "popularity" in out
    assert "markov" in out
    status, _, err = told(capsys, "train", "--run", own_run_dir, "--resume", "--set", "model.num_blocks=3")
    assert (status, "model.num_blocks was 2" in err) == (2, True)
    status, _, err = told(capsys, "train", "sasrec", "--run", own_run_dir, "--resume")
    assert (status, "leave out the recipe, --config, --schema and --vocabulary" in err) == (2, True)


def test_one_command_starts_a_run_and_goes_on_with_it(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", run_dir.parent / "data", "--run", tmp_path / "run", "--start-or-resume")
    assert told(capsys, "train", "sasrec", *data, *SETS)[0] == 0
    status, _, err = told(capsys, "train", "sasrec", *data, *SETS)
    assert (status, "resumed from" in err) == (0, True)


def test_lists_for_a_user_leave_out_what_is_known(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = pl.read_csv(run_dir.parent / "world" / "interactions.csv")
    known = set(events.filter(pl.col("user") == 7)["item"].to_list())
    status, out, _ = told(capsys, "recommend", run_dir, "--user", "7", "-k", "50", "--json")
    assert status == 0
    items = [row["item"] for row in json.loads(out)["items"]]
    assert len(set(items)) == 50
    assert not set(items) & known
    scores = [row["score"] for row in json.loads(out)["items"]]
    assert scores == sorted(scores, reverse=True)
    ordered = ",".join(str(i) for i in events.filter(pl.col("user") == 7).sort("time")["item"].to_list())
    status, again, _ = told(capsys, "recommend", run_dir, "--history", ordered, "-k", "50", "--json")
    assert json.loads(again) == json.loads(out), "a history is a history, whoever has it"


def test_lists_for_everybody_are_those_for_each(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = told(capsys, "recommend", run_dir, "--all", "--out", tmp_path / "lists.parquet", "-k", "4")
    assert (status, "100 users" in out) == (0, True)
    lists = pl.read_parquet(tmp_path / "lists.parquet")
    assert lists.columns == ["user", "rank", "item", "score", "source"]
    assert lists.height == 400
    _, out, _ = told(capsys, "recommend", run_dir, "--user", "33", "-k", "4", "--json")
    expected = json.loads(out)["items"]
    mine = lists.filter(pl.col("user") == 33).sort("rank")
    assert mine["item"].to_list() == [row["item"] for row in expected]
    assert mine["score"].to_list() == pytest.approx([row["score"] for row in expected], rel=1e-4)


def test_lists_have_titles_if_a_file_of_them_is_given(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    titles = tmp_path / "movies.dat"
    titles.write_bytes("".join(f"{item}::Élan {item}::Drama\n" for item in range(500)).encode("latin-1"))
    words = ("recommend", run_dir, "--user", "33", "-k", "4", "--titles", titles)
    status, out, _ = told(capsys, *words)
    assert (status, all(f"Élan {line.split()[1]}" in line for line in out.splitlines())) == (0, True)
    _, out, _ = told(capsys, *words, "--json")
    assert all(row["title"] == f"Élan {row['item']}" for row in json.loads(out)["items"])
    out_path = tmp_path / "lists.csv"
    told(capsys, "recommend", run_dir, "--all", "--out", out_path, "-k", "4", "--titles", titles)
    lists = pl.read_csv(out_path)
    assert lists["title"].to_list() == [f"Élan {item}" for item in lists["item"].to_list()]
    titles.write_text("x::Nothing::Drama\n")
    status, _, err = told(capsys, *words)
    assert (status, "has none of the" in err) == (2, True), err


REFUSALS = [
    (("--user", "4711"), "there is no user '4711' among the 100 prepared ones; give what the user did with --history"),
    (("--user", "x"), "there is no user 'x'"),
    (("--user", "7", "-k", "0"), "-k 0: a list has at least one item"),
    (("--history", "[3, 7.5]"), "--history: [3, 7.5] is no list of items"),
    (("--history", "[3, 7"), "is no JSON list"),
    (("--all",), "--all and --histories write a file, --out FILE"),
    (("--user", "7", "--out", "x.parquet"), "--all and --histories write a file, --out FILE"),
]


@pytest.mark.parametrize(("words", "complaint"), REFUSALS)
def test_what_cannot_be_recommended(
    words: tuple[str, ...], complaint: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = told(capsys, "recommend", run_dir, *words)
    assert (status, complaint in err) == (2, True), err


@pytest.mark.parametrize("history", [" , ", "9999,x", "99999999999999999999,1_2"])
def test_a_history_without_a_known_item_gets_the_most_popular_ones(
    history: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = told(capsys, "recommend", run_dir, "--history", history, "-k", "3", "--json")
    assert (status, "no item that was trained on: the most popular items" in err) == (0, True)
    listed = json.loads(out)
    counts = sorted(open_prepared_sequences(run_dir.parent / "data").item_counts.tolist(), reverse=True)
    assert listed["source"] == "popularity"
    assert [each["score"] for each in listed["items"]] == counts[:3]


def test_lists_for_a_file_of_histories_are_those_for_each(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"anna": [3, 7, 12], "bert": ["5"], "nobody": [9999], "empty": [], "carl": [9999, 8]}
    path, out = tmp_path / "asked.jsonl", tmp_path / "deep" / "lists.parquet"
    path.write_text("".join(json.dumps({"user": u, "history": h}) + "\n" for u, h in asked.items()))
    status, told_all, _ = told(capsys, "recommend", run_dir, "--histories", path, "--out", out, "-k", "4")
    assert (status, "5 users" in told_all, "2 histories have no item" in told_all) == (0, True, True)
    lists = pl.read_parquet(out)
    sources = dict(zip(lists["user"], lists["source"], strict=True))
    assert sources == {user: "popularity" if user in ("nobody", "empty") else "model" for user in asked}
    for user in asked:
        history = ("--history", json.dumps(asked[user]))
        alone = json.loads(told(capsys, "recommend", run_dir, *history, "-k", "4", "--json")[1])["items"]
        rows = lists.filter(pl.col("user") == user).sort("rank")
        assert rows["item"].to_list() == [each["item"] for each in alone]
        assert rows["score"].to_list() == pytest.approx([each["score"] for each in alone], abs=1e-5)
    status, _, err = told(capsys, "recommend", run_dir, "--histories", path, "--out", out)
    assert (status, "lists.parquet is there already" in err) == (2, True)
    bad_lines = {
        "{": "is no JSON",
        '{"user": 1}': "is not of the form",
        "[]": "is not of the form",
        '{"user": null, "history": [3]}': "is not of the form",
        '{"user": "\\ud800", "history": [3]}': "is no JSON",
        '{"user": 1, "history": 3}': "",
    }
    for line, complaint in bad_lines.items():
        path.write_text(f'{{"user": "a", "history": [3]}}\n\n{line}\n')
        status, _, err = told(capsys, "recommend", run_dir, "--histories", path, "--out", tmp_path / "x.parquet")
        where = f"asked.jsonl:3: {line!r} {complaint}" if complaint else "asked.jsonl:3: 3 is no list of items"
        assert (status, where in err) == (2, True), err
    assert not (tmp_path / "x.parquet").exists()


def test_what_a_recipe_says_can_be_taken_back(run_dir: Path, tmp_path: Path) -> None:
    data = ["--data", str(run_dir.parent / "data")]
    sets = [word for word in SETS if word != "loss.num_sampled=30"][:-1]
    full = [*sets, "--set", "loss.kind=full", "--set", "model.item_init=normal", "--set", "model.item_rounds=none"]
    assert main(["train", "sasrec", *data, "--run", str(tmp_path / "full"), *full]) == 0
    assert main(["train", "--config", str(tmp_path / "full" / "config.toml"), "--run", str(tmp_path / "again")]) == 0
    weights = [(tmp_path / name / "model" / "dense.safetensors").read_bytes() for name in ("full", "again")]
    assert weights[0] == weights[1]
    assert main(["train", "sasrec", *data, "--run", str(tmp_path / "x"), *sets, "--set", "dense.lr=none"]) == 2
    partial = tmp_path / "partial.toml"
    partial.write_text('[model]\nkind = "sasrec"\n[protocol]\ncutoffs = [5, 10]\n[loss]\nlabel_smoothing = 0.1\n')
    more = [*sets, "--set", "protocol.candidates=uniform", "--set", "protocol.num_negatives=9"]
    more += ["--set", "loss.label_smoothing=0.2"]
    assert main(["train", "--config", str(partial), *data, "--run", str(tmp_path / "y"), *more]) == 0
    assert "label_smoothing = 0.2" in (tmp_path / "y" / "config.toml").read_text()


def test_a_rejected_resume_leaves_the_run_as_it_was(
    own_run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "synth", "interactions", "--users", "90", "--items", "90", "--seed", "9", "--out", tmp_path / "world")
    events = tmp_path / "world" / "interactions.csv"
    told(capsys, "prepare", "--preset", "events", "--data", events, "--out", tmp_path / "data")
    before = (own_run_dir / "config.toml").read_bytes()
    status, _, err = told(capsys, "train", "--run", own_run_dir, "--resume", "--data", tmp_path / "data")
    assert (status, "trained on other" in err) == (2, True), err
    assert (own_run_dir / "config.toml").read_bytes() == before


def test_an_item_never_seen_is_passed_over_and_told(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = told(capsys, "recommend", run_dir, "--history", "3,9999", "-k", "2")
    assert (status, len(out.splitlines())) == (0, 2)
    assert "never trained on: 9999" in err


def test_directories_of_the_other_kind_are_refused(
    run_dir: Path, tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = told(capsys, "train", "sasrec", "--data", tiny_world_dir, "--run", tmp_path / "run")
    assert (status, "holds no prepared sequences" in err) == (2, True)
    status, _, err = told(capsys, "train", "demo", "--data", run_dir.parent / "data", "--run", tmp_path / "click")
    assert (status, "holds prepared sequences, and model.kind = dlrm is a click model" in err) == (2, True)
    status, _, err = told(capsys, "recommend", tmp_path, "--user", "1")
    assert (status, "is no run directory (it has no config.toml), no checkpoint" in err) == (2, True)


OPTIONS = [
    (("train", "sasrec", "--max-restarts", "2"), "--max-restarts 2 is about the processes that --procs N starts"),
    (("train", "sasrec", "--warm-start", "x"), "--warm-start x does nothing for a sequence model"),
    (("train", "sasrec", "--schema", "criteo"), "--schema criteo does nothing for a sequence model"),
    (("prepare", "--preset", "goodreads", "--modulo", "5"), "--modulo does nothing for --preset goodreads"),
    (("prepare", "--preset", "mlperf", "--min-length", "5"), "--min-length does nothing for --preset mlperf"),
    (("prepare", "--preset", "goodreads", "--schema", "x.toml"), "preset goodreads knows its columns"),
    (("prepare", "--preset", "goodread"), "for events"),
]


@pytest.mark.parametrize(("words", "complaint"), OPTIONS)
def test_options_of_the_other_kind_are_refused(
    words: tuple[str, ...], complaint: str, tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--run", tmp_path / "x") if words[0] == "train" else ("--out", tmp_path / "x")
    status, _, err = told(capsys, *words, "--data", tiny_world_dir, *where)
    assert (status, complaint in err) == (2, True), err


def test_a_schema_of_one_s_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.tsv").write_text("anna\t5\tbook\nanna\t1\tpen\nbert\t4\tbook\nanna\t5\tcup\nanna\t5\tpot\n")
    (tmp_path / "shop.toml").write_text(
        'name = "shop"\nseparator = "\\t"\nheader = false\ncolumns = ["who", "stars", "what"]\n'
        'user = "who"\nitem = "what"\nrating = "stars"\nuser_kind = "string"\nitem_kind = "string"\n'
    )
    words = ("--preset", "events", "--schema", tmp_path / "shop.toml", "--order", "file", "--min-rating", "4")
    status, out, _ = told(capsys, "prepare", "--data", tmp_path / "log.tsv", "--out", tmp_path / "out", *words)
    assert status == 0
    assert "2 users, 1 items, 4 events of 5 read" in out
    (tmp_path / "shop.toml").write_text('columns = ["who", "what"]\nuser = "whom"\nitem = "what"\n')
    status, _, err = told(capsys, "prepare", "--data", tmp_path / "log.tsv", "--out", tmp_path / "out2", *words[:4])
    assert (status, "user = 'whom' is none of its columns who, what" in err) == (2, True)


def test_a_recipe_s_model_may_become_the_other_kind(run_dir: Path, tmp_path: Path) -> None:
    data = ["--data", str(run_dir.parent / "data"), "--run", str(tmp_path / "run")]
    assert main(["train", "bert4rec", *data, *SETS[:-2], "--set", "model.kind=sasrec"]) == 0
    config = (tmp_path / "run" / "config.toml").read_text()
    assert 'norm = "pre"' in config
    assert "[mask]" not in config


def test_a_plan_tells_the_memory_by_what_takes_it(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = told(capsys, "plan", "goodreads", "--items", "1000000", "--json")
    plan = json.loads(out)
    assert status == 0
    assert plan["item_bytes"] == 1_000_002 * 64 * 3 * 4, "vectors and Adam's two moments, no gradient"
    assert plan["whole_logits_bytes"] == 64 * 50 * 1_000_000 * 4
    assert plan["total_bytes"] < 8 << 30
    status, out, _ = told(capsys, "plan", "sasrec", "--data", run_dir.parent / "data")
    assert status == 0
    assert "item vectors: 90 of 128" in out
    status, out, _ = told(capsys, "plan", "bert4rec", "--items", "10000000", "--memory", "4GiB")
    assert (status, "does not fit" in out) == (2, True)
    status, _, err = told(capsys, "plan", "sasrec")
    assert (status, "give --data DIR or --items N" in err) == (2, True)
    status, _, err = told(capsys, "plan", "demo", "--items", "5")
    assert (status, "--items 5 is for sequence models" in err) == (2, True)


def test_a_plan_counts_what_is_counted_from_events(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "tdfo", "--items", "1000000", "--json", "--set", "model.embedding_dim=64")
    counted = ("--set", "model.transition_weight=1.0", "--set", "model.item_init=co_occurrence")
    alone, both = (json.loads(told(capsys, *words, *more)[1]) for more in ((), counted))
    assert (alone["transition_bytes"], alone["first_bytes"]) == (0, 0)
    assert both["transition_bytes"] == 10 * 1_000_000 * 8 + 1_000_000 * 8, "ten events of an item, if nothing is known"
    assert both["first_bytes"] == 4 * 1_000_000 * 64 * 4
    assert both["total_bytes"] > alone["total_bytes"]
    status, out, _ = told(capsys, "plan", "bert4rec", "--data", run_dir.parent / "data", *counted)
    assert (status, "transitions: 0.000 GiB" in out, "at the start: 0.000 GiB" in out) == (0, True, True), out


def test_a_plan_of_several_processes_is_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "goodreads", "--items", "1000000", "--memory", "8GiB")
    alone, four = (json.loads(told(capsys, *words, *more, "--json")[1]) for more in ((), ("--procs", "4")))
    assert four["item_bytes"] == alone["item_bytes"], "a copy in every process"
    assert 3 < alone["batch_bytes"] / four["batch_bytes"] < 5
    assert four["memory_bytes"] == alone["memory_bytes"] // 4
    spread = ("--procs", "4", "--set", "tables.kind=adagrad", "--set", "sharding.kind=row_wise", "--json")
    rows = json.loads(told(capsys, *words, *spread)[1])
    assert rows["item_bytes"] == 250_001 * 64 * 2 * 4, "a quarter of the vectors and their accumulators"
    assert rows["score_bytes"] == four["score_bytes"] + 1_000_002 * 64 * 4, "an evaluation has all of them"
    status, out, _ = told(capsys, *words, "--procs", "4", "--device-memory", "1GiB")
    assert (status, "for each of 4 processes; 1.00 GiB are there: does not fit" in out) == (2, True), out
    status, _, err = told(capsys, *words, "--procs", "0")
    assert (status, "--procs is 0" in err) == (2, True)
