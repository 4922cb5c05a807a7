"""The command line as a person meets it."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from recmill import settings as recmill_settings
from recmill.cli.main import SPIN_COUNT, calm_threads
from recmill.recipes import RECIPES
from tests.cli.command import TINY, VERBS, Command


def test_help_lists_the_verbs_without_importing_anything_heavy() -> None:
    program = (
        "import sys; from recmill.cli.main import main\ntry: main(['--help'])\nfinally: print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    *listed, modules = done.stdout.splitlines()
    assert {"predict", "recommend", "bench"} < VERBS.keys()
    assert [verb for verb in VERBS if not any(line.split()[:1] == [verb] for line in listed)] == []
    for heavy in ("torch", "numba", "numpy", "pydantic", "polars", "rich"):
        assert f"'{heavy}'" not in modules


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, recmill: Command) -> None:
    outcome = recmill(verb, "--help")
    assert outcome.status == 0
    assert outcome.out.startswith(f"usage: recmill {verb}")


def test_python_minus_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "recmill", "train"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--run" in done.stderr


def test_train_then_evaluate_reproduces_the_recorded_metrics(
    recmill: Command, tiny_world_dir: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    trained = recmill("train", "demo", "--data", tiny_world_dir, "--run", run_dir, *TINY)
    assert trained.status == 0, trained.err
    assert f"AUROC {json.loads((run_dir / 'results.json').read_text())['validation']['auroc']} on val" in trained.out
    assert str(run_dir) in trained.out
    results = json.loads((run_dir / "results.json").read_text())
    for split in ("validation", "test"):
        evaluated = recmill("evaluate", run_dir, "--split", split, "--json")
        assert evaluated.status == 0, evaluated.err
        told = json.loads(evaluated.out)
        assert told.pop("weights") == f"best weights (step {results['step']})"
        assert told == {"split": split, **results[split]}
    assert f"auroc {results['test']['auroc']:.5f}" in recmill("evaluate", run_dir).out


def test_a_run_needs_its_schema_file_no_more(recmill: Command, tiny_world_dir: Path, tmp_path: Path) -> None:
    """One file, split by its last lines, columns from a schema file of the user's own that then changes and goes."""
    shipped = Path(recmill_settings.__path__[0]) / "builtin" / "criteo.toml"
    schema_path, run_dir = tmp_path / "own.toml", tmp_path / "run"
    own = shipped.read_text().replace('"dense", kind = "int" }', '"dense", kind = "int", encoding = "log(x+2)" }')
    schema_path.write_text(own.replace('"hex" }', '"hex", rows = 50 }'))
    words = ("--data", tiny_world_dir / "day_0", "--run", run_dir, "--set", "data.global_batch=100")
    trained = recmill("train", "demo", "--schema", schema_path, *words)
    assert trained.status == 2
    assert "is a file; say which share of its last lines" in trained.err
    trained = recmill("train", "demo", "--schema", schema_path, *words, "--set", "data.holdout_frac=0.2")
    assert trained.status == 0, trained.err
    results = json.loads((run_dir / "results.json").read_text())
    assert (results["rows"], results["validation"]["num_rows"], results["test"]["num_rows"]) == (800, 100, 100)
    schema_path.write_text(shipped.read_text())
    for _ in range(2):
        evaluated = recmill("evaluate", run_dir, "--json")
        assert json.loads(evaluated.out).items() >= {"split": "test", **results["test"]}.items()
        schema_path.unlink(missing_ok=True)
    resumed = recmill("train", "--run", run_dir, "--resume", "--set", "data.row_schema=kaggle")
    assert f"data.row_schema was schema criteo in {run_dir} and cannot become kaggle" in resumed.err


def test_the_resolved_settings_of_a_run_make_the_same_run(
    recmill: Command, tiny_world_dir: Path, tmp_path: Path
) -> None:
    assert recmill("train", "demo", "--data", tiny_world_dir, "--run", tmp_path / "a", *TINY).status == 0
    assert recmill("train", "--config", tmp_path / "a" / "config.toml", "--run", tmp_path / "b").status == 0
    for name in ("dense.safetensors", "tables.safetensors"):
        assert (tmp_path / "a" / "model" / name).read_bytes() == (tmp_path / "b" / "model" / name).read_bytes()


def test_the_halves_of_the_last_day_in_either_order(recmill: Command, tiny_world_dir: Path, tmp_path: Path) -> None:
    """The same model, judged on the same halves under their other names; prepared rows remember which is which."""
    other = ("--set", "data.first_half=test")
    assert recmill("prepare", "--data", tiny_world_dir, "--out", tmp_path / "rows", *other).status == 0
    results = dict[str, dict[str, dict[str, object]]]()
    for name, words in {
        "raw": (tiny_world_dir, *TINY),
        "raw, other": (tiny_world_dir, *TINY, *other),
        "prepared, other": (tmp_path / "rows",),
    }.items():
        outcome = recmill("train", "demo", "--run", tmp_path / name, "--set", "stop.max_steps=2", "--data", *words)
        assert outcome.status == 0, outcome.err
        results[name] = json.loads((tmp_path / name / "results.json").read_text())
    assert results["raw"]["validation"] == results["raw, other"]["test"] != results["raw"]["test"]
    assert results["raw"]["test"] == results["raw, other"]["validation"]
    for split in ("validation", "test"):
        assert results["prepared, other"][split]["num_clicks"] == results["raw, other"][split]["num_clicks"]
    refused = recmill(
        *("train", "demo", "--run", tmp_path / "r", "--data", tmp_path / "rows", "--set", "data.first_half=validation")
    )
    assert refused.status == 2
    assert "data.first_half = validation, and" in refused.err


def test_a_limited_judgement_says_so(recmill: Command, tiny_world_dir: Path, tmp_path: Path) -> None:
    limits = ("--set", "stop.max_steps=2", "--set", "data.eval_batch=100", "--set", "data.max_test_batches=3")
    trained = recmill("train", "demo", "--data", tiny_world_dir, "--run", tmp_path / "run", *TINY, *limits)
    assert trained.status == 0, trained.err
    assert " on validation, " in trained.out
    assert " on the first 300 rows of test\n" in trained.out
    again, whole = (
        json.loads(recmill("evaluate", tmp_path / "run", "--json", *words).out) for words in ((), ("--max-batches", 0))
    )
    assert (again["num_rows"], again["whole_split"]) == (300, False)
    assert (whole["num_rows"], whole["whole_split"]) == (500, True)
    assert recmill("evaluate", tmp_path / "run", "--max-batches", -1).status == 2


def test_a_recipe_may_be_given_another_model(recmill: Command, tiny_world_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "dcn.toml").write_text("[model]\nkind = 'dcn'\ncross_rank = 3\n")
    words = ("train", "demo", "--data", tiny_world_dir, "--set", "stop.max_steps=2")
    crossed = recmill(*words, "--config", tmp_path / "dcn.toml", "--run", tmp_path / "dcn")
    assert crossed.status == 0, crossed.err
    plain = recmill(*words, "--set", "model.kind=dnn", "--set", "model.wide=true", "--run", tmp_path / "dnn")
    assert plain.status == 0, plain.err
    settings = (tmp_path / "dcn" / "config.toml").read_text()
    assert 'kind = "dcn"' in settings
    assert "cross_rank = 3" in settings
    assert recmill("evaluate", tmp_path / "dnn").status == 0
    other = recmill("train", "--run", tmp_path / "dcn", "--resume", "--set", "model.kind=dnn")
    assert f"model.kind was dcn in {tmp_path / 'dcn'} and cannot become dnn" in other.err


def test_a_run_is_refused_resumed_or_overwritten(recmill: Command, tiny_world_dir: Path, tmp_path: Path) -> None:
    words = ("train", "demo", "--data", tiny_world_dir, "--run", tmp_path / "run", *TINY)
    assert recmill(*words, "--set", "stop.max_steps=3").status == 0
    refused = recmill(*words)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "--resume" in refused.err
    resumed = recmill("train", "--run", tmp_path / "run", "--resume", "--set", "stop.max_steps=6")
    assert resumed.status == 0, resumed.err
    assert json.loads((tmp_path / "run" / "results.json").read_text())["step"] == 6
    changed = recmill("train", "--run", tmp_path / "run", "--resume", "--set", "dense.lr=9")
    assert changed.status == 2
    assert "dense.lr was 0." in changed.err
    assert "cannot become 9.0: it would be another run" in changed.err
    assert "leave out the recipe" in recmill(*words, "--resume").err
    assert recmill(*words, "--overwrite", "--set", "stop.max_steps=2").status == 0
    assert json.loads((tmp_path / "run" / "results.json").read_text())["step"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "--run", "r"), f"name a recipe ({', '.join(RECIPES)}) or give settings"),
        (("train", "smal", "--run", "r"), "there is no recipe 'smal'; did you mean small?"),
        (("train", "small", "--run", "r"), "data.dir is not set; give the directory of the click logs with --data DIR"),
        (("train", "small", "--run", "r", "--data", "/nowhere"), "there is no directory /nowhere"),
        (("train", "small", "--run", "r", "--set", "lr=1"), "lr = 1 is not a setting; did you mean"),
        (("train", "small", "--run", "r", "--config", "none.toml"), "there is no settings file none.toml"),
        (("train", "--run", "absent", "--resume"), "absent is not a run directory"),
        (("evaluate", "absent"), "absent is not a run directory"),
    ],
)
def test_mistakes_are_one_readable_line_and_status_2(
    words: tuple[str, ...], message: str, recmill: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = recmill(*words)
    assert outcome.status == 2
    assert message in outcome.err
    assert outcome.err.startswith("recmill: ")
    assert outcome.err.count("\n") <= 2
    assert "Traceback" not in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_bad_row_names_file_line_and_column_and_can_be_skipped(
    recmill: Command, tiny_world_dir: Path, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    for path in tiny_world_dir.glob("day_*"):
        lines = path.read_bytes().splitlines(keepends=True)
        if path.name == "day_1":
            lines[41] = lines[41].replace(lines[41].split(b"\t")[15], b"xyz", 1)
        (data_dir / path.name).write_bytes(b"".join(lines))
    words = ("train", "demo", "--data", data_dir, "--run", tmp_path / "run", *TINY)
    failed = recmill(*words)
    assert failed.status == 2
    assert f"{data_dir}/day_1:42: column cat_1 holds 'xyz'" in failed.err
    skipped = recmill(*words, "--overwrite", "--bad-rows", "skip")
    assert skipped.status == 0, skipped.err
    assert "1 bad lines ignored" in skipped.out
    assert json.loads((tmp_path / "run" / "results.json").read_text())["skipped_rows"] == 1


def test_divergence_is_a_failure_with_status_1(recmill: Command, tiny_world_dir: Path, tmp_path: Path) -> None:
    words = ("train", "demo", "--data", tiny_world_dir, "--run", tmp_path / "run", *TINY)
    outcome = recmill(*words, "--set", "dense.lr=1e30", "--set", "dense.kind=sgd", "--set", "schedule.warmup_steps=0")
    assert outcome.status == 1
    assert "recmill: the loss of step" in outcome.err
    assert "the last good state is" in outcome.err


def test_debug_lets_the_traceback_through(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "recmill", "--debug", "evaluate", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert "Traceback" in done.stderr
    assert "RunError" in done.stderr


def test_doctor_reports_the_machine(recmill: Command) -> None:
    outcome = recmill("doctor", "--json")
    assert outcome.status == 0
    report = json.loads(outcome.out)
    assert report["healthy"] is True
    assert {"device", "threads", "memory_free_gib", "disk_free_gib", "missing", "versions"} <= report.keys()
    assert "healthy" in recmill("doctor").out


def test_doctor_says_how_to_get_what_is_missing(monkeypatch: pytest.MonkeyPatch, recmill: Command) -> None:
    from recmill.observe import environment

    installed = environment.package_version
    monkeypatch.setattr(environment, "package_version", lambda name: None if name == "torchrec" else installed(name))
    outcome = recmill("doctor")
    assert outcome.status == 0
    assert (
        "missing   recmill[sharded] (torchrec), for tables on several processes and on CUDA: make install-full"
        in outcome.out
    )


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_schema_is_inferred_from_the_beginning_of_files(recmill: Command, tmp_path: Path, suffix: str) -> None:
    packers = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
    text = b"click,price\n" + b"".join(b"%d,%d.5\n" % (i % 2, i) for i in range(200_000))
    path, out = tmp_path / f"log.csv{suffix}", tmp_path / "log.toml"
    path.write_bytes(packers.get(suffix, bytes)(text))
    written = recmill("schema", "infer", path, "--out", out)
    assert (written.status, written.out) == (0, ""), written.err
    assert out.read_text().startswith("# A first guess")
    refused = recmill("schema", "infer", path, "--out", out)
    assert refused.status == 2
    assert "log.toml is there already; choose another name or pass --overwrite" in refused.err
    assert recmill("schema", "infer", path).out == out.read_text()
    assert '{ name = "click", role = "label", kind = "int" }' in recmill("schema", "show", out).out


def test_a_schema_is_shown_by_name(recmill: Command) -> None:
    assert recmill("schema", "show", "kaggle").out.count("rows = ") == 26
    assert "did you mean kaggle?" in recmill("schema", "show", "kagle").err


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("absent", None, "absent cannot be read: No such file or directory"),
        ("bad.gz", b"no gzip", "bad.gz is damaged or cut short"),
        ("binary", b"x" * (1 << 20) + b"y", "binary has no newline in its first 1,048,576 bytes; is it a text file?"),
    ],
)
def test_files_that_cannot_be_sampled_are_named(
    recmill: Command, tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    outcome = recmill("schema", "infer", tmp_path / name)
    assert outcome.status == 2
    assert complaint in outcome.err


def test_bench_names_its_benchmarks(recmill: Command) -> None:
    assert "auto,read,csv-read,audit,prepare,train,embeddings" in recmill("bench").out
    assert recmill("bench", "speed").status == 2
    assert "recmill bench read" in recmill("bench", "read", "--help").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--with-ray",), "--with-ray is about ids that are looked up; give --vocabulary too"),
        (("--with-ray", "--vocabulary"), "--with-ray needs ray, which is not installed: .venv/bin/pip install "),
    ],
)
def test_a_rival_that_is_not_there_is_asked_for_with_a_way_out(
    words: tuple[str, ...], message: str, recmill: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = recmill("bench", "read", *words)
    assert refused.status == 2
    assert message in refused.err


def test_bench_audit_compares_with_polars_before_it_measures(recmill: Command) -> None:
    measured = recmill("bench", "audit", "--rows", 3000, "--rounds", 1, "--json")
    assert measured.status == 0, measured.err
    report = json.loads(measured.out.splitlines()[-1])
    assert report["notes"]["columns compared"] == "39 of 39"
    assert report["ratios"].keys() == {"recmill/polars"}


@pytest.mark.parametrize("decided", [{}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}], ids=str)
def test_threads_give_way_unless_somebody_has_decided_otherwise(decided: dict[str, str]) -> None:
    environment = dict(decided)
    calm_threads(environment)
    assert environment == (decided or {"GOMP_SPINCOUNT": SPIN_COUNT})


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "out of memory"),
        (PermissionError(13, "Permission denied", "/x"), "/x cannot be read or written"),
    ],
)
def test_what_the_system_does_not_give_is_explained(
    error: Exception, said: str, recmill: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_words: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("recmill.recipes.resolve.read_run_config", fail)
    done = recmill("evaluate", "anything")
    assert (done.status, said in done.err, "internal error" in done.err) == (2, True, False)
