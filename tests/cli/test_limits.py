"""Values at the limits of every setting: a run of one step works, or ends with a message and status 2."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from recmill.settings.clicks import TrainConfig
from recmill.settings.reflect import sections_in
from recmill.settings.sequences import SequenceConfig
from tests.laws.forks import Ended, ForkServer

WHOLE = ("-1", "0", "1", "2147483648", "10000000000", "9223372036854775807", "18446744073709551616", "1" + "0" * 400)
REAL = ("-1", "0", "5e-324", "1e-45", "1e38", "1e308", "inf", "nan")
TEXTS = ('""', '"\\u0000"', '"' + "x" * 5000 + '"', '"a/../\\u0085"')
DEEP = "[" * 1000 + "]" * 1000
# What makes a kind's own settings mean something.
CLICK_KINDS = {"DcnConfig": "dcn", "ProjectionConfig": "projection", "FinalMlpConfig": "finalmlp", "DnnConfig": "dnn"}
TINY_CLICK = (
    *("data.table_rows=" + ",".join(["50"] * 26), "data.global_batch=100", "data.eval_batch=100", "model.init=normal"),
    *("stop.max_steps=1", "data.max_validation_batches=1", "data.max_test_batches=1", "baselines.max_rows=100"),
)
TINY_SEQUENCE = ("stop.max_steps=1", "data.max_validation_users=5", "data.max_test_users=5", "model.embedding_dim=8")


def values_of(annotation: object) -> Iterator[str]:
    """Values at the limits of a type, written as TOML."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType, Annotated):
        for part in get_args(annotation)[: 1 if origin is Annotated else None]:
            yield from values_of(part)
    elif origin is tuple:
        yield from ("[]", DEEP, "[" + ",".join(["1"] * 100) + "]")
        yield from (f"[{value}]" for value in values_of(get_args(annotation)[0]))
    elif origin is Literal:
        yield from ('"nothing"', "1")
    elif annotation is bool:
        yield from ("1", '"yes"')
    elif annotation is int:
        yield from WHOLE
    elif annotation is float:
        yield from REAL
    elif annotation is str:
        yield from TEXTS
    elif origin is not None:  # a mapping
        yield from ("{}", '{ "\\u0000" = 1 }', DEEP)


def settings_of(kind: type[BaseModel], above: str = "") -> Iterator[tuple[str, type[BaseModel], object]]:
    """All settings: the dotted key, the section's class, and the type."""
    for name, info in kind.model_fields.items():
        sections = sections_in(info.annotation)
        if name == "row_schema" or not sections:
            yield f"{above}{name}", kind, info.annotation
            continue
        for section in sections:
            yield from settings_of(section, f"{above}{name}.")


def cases_of(kind: type[BaseModel], skipped: Sequence[str]) -> list[tuple[str, ...]]:
    """One group of assignments for every value to try."""
    found: dict[tuple[str, ...], None] = {}
    seen = set[tuple[str, str]]()
    for key, section, annotation in settings_of(kind):
        if key in skipped or (key, repr(annotation)) in seen:  # several kinds of a section share most of their settings
            continue
        seen.add((key, repr(annotation)))
        first = with_kind(section, key)
        for value in dict.fromkeys(values_of(annotation)):
            found[(*first, f"{key}={value}")] = None
    return list(found)


def with_kind(section: type[BaseModel], key: str) -> tuple[str, ...]:
    """The assignments without which a setting would be unknown or do nothing."""
    if section.__name__ in CLICK_KINDS:
        return (f"model.kind={CLICK_KINDS[section.__name__]}",)
    name = key.rpartition(".")[2]
    if key in ("loss.num_sampled", "loss.sampling", "loss.sampling_power") or key.startswith("sequence.tables"):
        return ("loss.kind=sampled",)
    if key.startswith("precision.") and name in ("scaling", "scale", "growth_interval"):
        return ("precision.kind=fp16",)
    if key.startswith("average.") and name != "from_step":
        return ("average.from_step=1",)
    if key.startswith(("dense.", "tables.")) and name in ("beta1", "beta2"):
        return (f"{key.partition('.')[0]}.kind=adam",)
    if key.startswith("tables.") and name in ("l1", "l2", "lr_power"):
        return ("tables.kind=ftrl",)
    if key.startswith(("dense.", "tables.")) and name == "momentum":
        return (f"{key.partition('.')[0]}.kind=sgd",)
    return ()


def violations(
    server: ForkServer, words: Sequence[str | Path], cases: Sequence[tuple[str, ...]], run_dir: Path
) -> list[str]:
    """Those that neither work nor are rejected in words."""
    found = []
    for number, case in enumerate(cases):
        sets = [word for assignment in case for word in ("--set", assignment)]
        ended = server.run(*words, "--run", run_dir / str(number), *sets)
        if not is_fine(ended):
            found.append(f"{' '.join(each[:80] for each in case)}: {ended.describe()}")
    return found


def is_fine(ended: Ended) -> bool:
    """Whether a command worked, was rejected, or diverged and said so."""
    diverged = ended.status == 1 and "lower the learning rates" in ended.err and "Traceback" not in ended.err
    return ended.status == 0 or ended.is_rejected or diverged


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(timeout_s=60) as running:  # 20 s of a machine that others work on too
        yield running


@pytest.fixture(scope="module")
def clicks(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str | Path]:
    place = tmp_path_factory.mktemp("clicks")
    server.warm_up("synth", "criteo", "--days", "3", "--rows", "300", "--out", place / "world")
    words: list[str | Path] = ["train", "demo", "--data", place / "world", "--set", "threads=1"]
    for assignment in TINY_CLICK:
        words += ["--set", assignment]
    server.warm_up(*words, "--run", place / "first")
    return words


@pytest.fixture(scope="module")
def sequences(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str | Path]:
    place = tmp_path_factory.mktemp("sequences")
    # in forks: polars has threads, which would not live on in later ones
    assert server.run("synth", "interactions", "--users", "40", "--items", "80", "--out", place / "world").status == 0
    events = place / "world" / "interactions.csv"
    assert server.run("prepare", "--preset", "events", "--data", events, "--out", place / "data").status == 0
    words: list[str | Path] = ["train", "sasrec", "--data", place / "data", "--set", "threads=1"]
    for assignment in TINY_SEQUENCE:
        words += ["--set", assignment]
    server.warm_up(*words, "--run", place / "first")
    return words


SETTINGS = {"clicks": TrainConfig, "sequences": SequenceConfig}
SKIPPED = ("threads", "data.dir")  # the first would start threads in forks, the second is the data


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_at_their_limits_work_or_are_rejected(
    name: str, server: ForkServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cases = random.Random(0).sample(cases_of(SETTINGS[name], SKIPPED), 60)
    assert violations(server, request.getfixturevalue(name), cases, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_all_settings_at_their_limits_work_or_are_rejected(
    name: str, server: ForkServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cases = cases_of(SETTINGS[name], SKIPPED)
    assert len(cases) > 600
    assert violations(server, request.getfixturevalue(name), cases, tmp_path) == []


CLICK_CASES = (
    "data.table_rows=" + ",".join([str(2**31)] * 26),
    "data.table_rows=" + ",".join([str(10**10)] * 26),
    "data.table_rows=" + ",".join([str(2**63 - 1)] * 26),
    "data.table_rows=" + ",".join([str(2**63)] * 26),
    "data.eval_batch=1000000000",
    "data.eval_batch=1" + "0" * 400,
    "model.bottom=[1000000000,16]",
    "model.bottom=" + DEEP,
    "tables.initial_accumulator=1e308",
    "seed=18446744073709551616",
    "seed=-1",
    "seed=" + "1" * 5000,
    "dense.lr=0",
    "dense.lr=inf",
    "dense.lr=nan",
    "tables.lr=1e38",
    "a" + ".a" * 50_000 + "=1",
    "model" + ".a" * 300 + "=1",
    "data.dir=\udcff",
    "\udcff=1",
    'warm_start.from_dir="\\u0000"',
    "warm_start.from_dir=" + "x" * 5000,
)


@pytest.mark.parametrize("assignment", CLICK_CASES, ids=lambda assignment: ascii(assignment[:30]))
def test_a_value_beyond_the_limit_of_a_click_setting_is_rejected(
    assignment: str, server: ForkServer, clicks: Sequence[str | Path], tmp_path: Path
) -> None:
    assert server.run(*clicks, "--set", assignment, "--run", tmp_path / "run").is_rejected


@pytest.mark.parametrize(
    "assignment",
    [
        "loss.num_sampled=10000000000",
        "model.hidden_dim=2147483648",
        "model.item_rounds=2147483648",
        "model.init_std=1e38",
    ],
)
def test_a_value_beyond_the_limit_of_a_sequence_setting_is_rejected(
    assignment: str, server: ForkServer, sequences: Sequence[str | Path], tmp_path: Path
) -> None:
    ended = server.run(*sequences, "--set", assignment, "--run", tmp_path / "run")
    assert ended.is_rejected
    assert assignment.partition("=")[0] in ended.err


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 200_000 + " = 1",
        '"a"' + ' . "a"' * 20_000 + " = 1",
        f"seed = {DEEP}",
        "seed = " + "[" * 50 + "]" * 50,
    ],
    ids=["dots", "quoted", "deep", "fifty"],
)
def test_a_settings_file_that_is_nested_without_end_is_rejected(text: str, server: ForkServer, tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    ended = server.run("plan", "demo", "--config", path)
    assert ended.is_rejected
    assert str(path) in ended.err


def test_histories_at_their_limits(server: ForkServer, sequences: Sequence[str | Path], tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert server.run(*sequences, "--run", run_dir).status == 0
    for history in ("1" * 5000, "0" * 5000 + "3", "-" + "9" * 19, "3,\udcff", "[" * 5000):
        ended = server.run("recommend", run_dir, "--history", history)
        assert ended.status == 0 or ended.is_rejected, history[:20]
    for line in (
        '{"user": "a", "history": ' + "[" * 100_000,
        '{"user": "\\ud800", "history": [3]}',
        '{"user": 1' + "0" * 5000,
    ):
        (tmp_path / "asked.jsonl").write_text(line)
        asked = ("--histories", tmp_path / "asked.jsonl", "--out", tmp_path / "lists.csv")
        assert server.run("recommend", run_dir, *asked).is_rejected, line[:20]


def test_column_names_of_any_characters_are_audited(server: ForkServer, tmp_path: Path) -> None:
    names = [
        "label",
        "a\u0085b",
        '"x""y"',
        "[red]",
        "a[0]",
        "a.b",
        "-",
        "\u202eabc",
        "%s{0}",
        '"new\nline"',
        "\U0001f600",
    ]
    rows = [
        ",".join(["01"[row % 2], *("abc"[(row + place) % 3] for place in range(len(names) - 1))]) for row in range(300)
    ]
    path = tmp_path / "odd.csv"
    path.write_text("\n".join([",".join(names), *rows, ""]), encoding="utf-8")
    for words in (("--json",), ()):
        assert server.run("audit", "--data", path, *words).status == 0


def test_names_that_are_not_utf8_are_rejected_or_work(server: ForkServer, tmp_path: Path) -> None:
    events = ("synth", "interactions", "--users", "40", "--items", "80", "--out")
    assert server.run(*events, tmp_path / "\udcff").is_rejected
    assert server.run(*events, tmp_path / "events").status == 0
    odd = (tmp_path / "events" / "interactions.csv").rename(tmp_path / "\udcff.csv")
    ended = server.run("prepare", "--preset", "events", "--data", odd, "--out", tmp_path / "data")
    assert ended.status == 0 or ended.is_rejected
    assert server.run("prepare", "--preset", "events", "--data", odd, "--out", tmp_path / "\udcfe").is_rejected
    for words in (("audit", "--data"), ("train", "auto", "--run", tmp_path / "run", "--data"), ("plan", "--config")):
        assert server.run(*words, tmp_path / "\udcff").is_rejected
