"""Runs on sequences: what they learn, what they write, and that they go on exactly where they stopped."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from recmill.api.evaluate import evaluate
from recmill.data.events.prepare import EventJob, prepare_events
from recmill.data.synthetic.chains import EVENTS_FILE
from recmill.errors import ConfigError, NonFiniteLoss, RunError
from recmill.recipes import find_recipe
from recmill.serve.model import load_sequence_model
from recmill.serve.weights import find_weights
from recmill.settings.events import EVENT_PRESETS
from recmill.settings.sequences import SequenceConfig
from recmill.settings.tree import from_tree, laid_over, parse_assignments
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.job import run_job
from recmill.training.sequence.plan import make_sequence_plan, refuse_large_run
from recmill.training.sequence.step import build_sequence_state
from tests.laws.kill import model_bytes, train_under_fire
from tests.training.sequence.worlds import TINY, make_world, open_task, resolve

KINDS = {
    "sasrec": ("model.kind=sasrec", "model.attention_dropout=0.1"),
    "bert4rec": ("model.kind=bert4rec", "mask.replace=true", "data.window_step=2"),
    "sampled": ("model.kind=sasrec", "loss.kind=sampled", "loss.num_sampled=20", "dense.kind=sgd"),
    "engine": ("model.kind=bert4rec", "loss.kind=sampled", "loss.num_sampled=20", "tables.kind=adam", "tables.lr=0.01"),
    "counted": (
        "model.kind=sasrec",
        "loss.kind=sampled",
        "loss.num_sampled=20",
        "tables.kind=adam",
        "model.item_init=co_occurrence",
        "model.item_std=0.2",
        "model.transition_weight=1.5",
        "model.transition_events=2",
    ),
    "averaged": ("model.kind=bert4rec", "average.from_step=4", "average.every_steps=3", "average.recent_frac=0.5"),
}


@pytest.fixture(scope="session")
def chains_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("chains"))[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(kind: str, chains_dir: Path, tmp_path: Path) -> None:
    words = (*KINDS[kind], "stop.max_epochs=3", "cadence.evaluate_every_epochs=1.0")
    whole = run_job(resolve(chains_dir, *words), tmp_path / "whole")
    for number, limit in enumerate((5, 6, 17, 0)):
        config = resolve(chains_dir, *words, f"stop.max_steps={limit}")
        parted = run_job(config, tmp_path / "parted", resume=number > 0)
    assert model_bytes(tmp_path / "whole") == model_bytes(tmp_path / "parted")
    for name in ("step", "epoch", "rows", "best", "validation", "test", "test_of_best", "baselines"):
        assert parted[name] == whole[name], name
    assert set(model_bytes(tmp_path / "whole")) == {"dense.safetensors"} | (
        {"tables.safetensors"} if kind in ("engine", "counted") else set()
    )


@pytest.mark.parametrize("kind", ["sasrec", "bert4rec"])
def test_transitions_are_added_where_items_are_ranked_and_nowhere_else(
    kind: str, chains_dir: Path, tmp_path: Path
) -> None:
    """The weights are those of a run without them, whose numbers stand beside as the network's."""
    words = (*KINDS[kind], "stop.max_epochs=2")
    alone = run_job(resolve(chains_dir, *words), tmp_path / "alone")
    both = run_job(resolve(chains_dir, *words, "model.transition_weight=3.0"), tmp_path / "both")
    assert model_bytes(tmp_path / "alone") == model_bytes(tmp_path / "both")
    assert "network" not in alone["baselines"]
    assert both["baselines"]["network"] == {**alone["test"], "weights": "last"}
    assert both["baselines"]["markov"] == alone["baselines"]["markov"]
    assert both["test"]["ndcg@10"] > alone["test"]["ndcg@10"] + 0.1
    task = open_task(resolve(chains_dir, *words, "model.transition_weight=3.0"), is_new=False)
    read_model(tmp_path / "both" / "model", task.state)
    assert task.evaluate("test").as_dict() == both["test"], "counts are made again from the prepared events"


def test_first_vectors_of_neighbours_are_left_out_where_weights_are_read(chains_dir: Path) -> None:
    config = resolve(chains_dir, *KINDS["counted"])
    new, read = (open_task(config, is_new=is_new).state.model.output_weights() for is_new in (True, False))
    lengths = new.norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 0.2 * 8**0.5))
    assert not torch.equal(new, read)


def test_rounds_of_what_is_not_there_are_refused(chains_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"does nothing for .*item_init = normal"):
        resolve(chains_dir, "model.kind=sasrec", "model.item_rounds=2")


@pytest.mark.parametrize("kind", ["bert4rec", "engine", "counted"])
def test_a_mean_of_weights_is_what_is_judged_and_left_behind(kind: str, chains_dir: Path, tmp_path: Path) -> None:
    words = (*KINDS[kind], "stop.max_steps=9")
    plain = run_job(resolve(chains_dir, *words), tmp_path / "plain")
    config = resolve(chains_dir, *words, "average.from_step=9")
    newest = run_job(config, tmp_path / "newest")
    assert model_bytes(tmp_path / "newest") == model_bytes(tmp_path / "plain"), "the mean of one"
    assert newest["test"] == plain["test"]
    config = resolve(chains_dir, *words, "average.from_step=1")
    results = run_job(config, tmp_path / "mean")
    assert model_bytes(tmp_path / "mean") != model_bytes(tmp_path / "plain")
    task = open_task(config, is_new=False)
    read_model(tmp_path / "mean" / "model", task.state)
    assert task.evaluate("test").as_dict() == results["test"] != plain["test"]
    assert task.evaluate_baselines("test", "last") == results["baselines"]


@pytest.mark.parametrize("kind", ["bert4rec", "engine"])
def test_a_plan_counts_the_mean(kind: str, chains_dir: Path) -> None:
    plain, averaged = (
        make_sequence_plan(resolve(chains_dir, *KINDS[kind], *words), 1000) for words in ((), ("average.from_step=4",))
    )
    model = build_sequence_state(resolve(chains_dir, *KINDS[kind]), np.ones(1000, np.int64)).model
    num_weights = sum(parameter.numel() for parameter in model.parameters()) + (1002 * 8 if kind == "engine" else 0)
    assert averaged.total_bytes - plain.total_bytes == 4 * num_weights


@pytest.mark.slow
def test_a_run_killed_at_random_ends_with_the_same_bytes(chains_dir: Path, tmp_path: Path) -> None:
    words = ["sasrec", "--data", str(chains_dir)]
    seldom = ("stop.max_epochs=15", "cadence.evaluate_every_epochs=5.0", "cadence.log_every_steps=25")
    for assignment in (*TINY, *seldom, "cadence.save_every_steps=20", "tables.kind=adam", "loss.num_sampled=30"):
        words += ["--set", assignment]
    assert train_under_fire(words, tmp_path / "alone", num_kills=0, rng=random.Random(0)).kills == 0
    assert train_under_fire(words, tmp_path / "fire", num_kills=2, rng=random.Random(1)).kills == 2
    assert model_bytes(tmp_path / "alone") == model_bytes(tmp_path / "fire")
    expected, actual = (json.loads((tmp_path / run / "results.json").read_text()) for run in ("alone", "fire"))
    for name in ("step", "rows", "best", "validation", "test", "test_of_best"):
        assert actual[name] == expected[name]


LEARNERS = {
    "sasrec": ("model.kind=sasrec", "stop.max_epochs=12"),
    "bert4rec": ("model.kind=bert4rec", "stop.max_epochs=25", "mask.mask_prob=0.3", "mask.only_last_prob=0.3"),
    "engine": (
        "model.kind=sasrec",
        "stop.max_epochs=12",
        "loss.kind=sampled",
        "loss.num_sampled=40",
        "tables.kind=adam",
    ),
}


@pytest.mark.parametrize("kind", ["sasrec", "engine", pytest.param("bert4rec", marks=pytest.mark.slow)])
def test_a_model_learns_the_planted_chain(kind: str, tmp_path: Path) -> None:
    world, data_dir = make_world(tmp_path, users=1500, rules=1)
    words = ("model.embedding_dim=32", "model.dropout=0.0", "dense.lr=0.003", "schedule.warmup_steps=50")
    config = resolve(data_dir, "data.max_length=8", "data.global_batch=32", *words, *LEARNERS[kind])
    if config.tables:
        config = config.with_({"tables.lr": 0.003})
    results = run_job(config, tmp_path / "run")
    found, best = results["test"]["ndcg@10"], world.test.ndcg
    assert results["baselines"]["popularity"]["ndcg@10"] < 0.2
    assert best - 0.12 < found < best + 0.04, "1,500 users leave a deviation of 0.01"


def test_the_shipped_bert4rec_learns_the_planted_chain(tmp_path: Path) -> None:
    """All that the recipe does to learn faster, at a size that a test can afford."""
    world, data_dir = make_world(tmp_path, users=1500, rules=1)
    size = ["model.embedding_dim=32", "data.max_length=8", "data.global_batch=32", "model.dropout=0.0"]
    limits = ["threads=1", "stop.patience=0", "cadence.evaluate_every_steps=400"]
    recipe = find_recipe("bert4rec")().model_dump(mode="json", exclude_none=True)
    scores = list[float]()
    for steps in (1, 1200):  # neighbours' vectors may know much before the first step
        words = [f"data.dir={str(data_dir)!r}", *size, *limits, f"stop.max_steps={steps}"]
        config = from_tree(SequenceConfig, laid_over(recipe, parse_assignments(words)))
        scores.append(run_job(config, tmp_path / f"run {steps}")["test_of_best"]["ndcg@10"])
    assert scores[0] + 0.2 < scores[1]
    assert world.test.ndcg - 0.1 < scores[1] < world.test.ndcg + 0.04, "1,500 users leave a deviation of 0.01"


@pytest.mark.slow
def test_a_model_that_sees_whole_histories_beats_first_order_transitions(tmp_path: Path) -> None:
    """With two rules the newest event does not say which one its user follows; the history does."""
    world, data_dir = make_world(tmp_path, users=2000, rules=2)
    words = ("model.embedding_dim=32", "model.dropout=0.0", "dense.lr=0.003", "schedule.warmup_steps=50")
    config = resolve(
        data_dir, "model.kind=sasrec", "data.max_length=8", "data.global_batch=64", "stop.max_epochs=20", *words
    )
    results = run_job(config, tmp_path / "run")
    assert results["baselines"]["markov"]["ndcg@10"] + 0.02 < results["test"]["ndcg@10"] < world.test.ndcg + 0.03


def test_results_name_their_protocol_and_stand_beside_the_baselines(chains_dir: Path, tmp_path: Path) -> None:
    words = ("model.kind=sasrec", "protocol.candidates=popularity", "protocol.num_negatives=20", "stop.max_steps=3")
    results = run_job(resolve(chains_dir, *words), tmp_path / "run")
    assert results["test"]["protocol"]["candidates"] == "popularity"
    assert results["test"]["num_users"] == 200
    assert "ndcg@10_of_20_popularity" in results["test"]
    assert "ndcg@10" not in results["test"]
    assert results["baselines"]["markov"].keys() == results["test"].keys()
    assert results["best"]["ndcg@10_of_20_popularity"] == results["validation"]["ndcg@10_of_20_popularity"]
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["split"] for record in records if record["kind"] == "evaluate"] == ["validation", "test"]


@pytest.mark.parametrize("average", [(), ("average.from_step=3", "average.recent_frac=0.5")])
def test_the_best_weights_are_those_of_their_step_and_are_tested(
    average: tuple[str, ...], chains_dir: Path, tmp_path: Path
) -> None:
    words = (
        *average,
        "model.kind=sasrec",
        "cadence.evaluate_every_steps=5",
        "stop.max_epochs=30",
        "stop.patience=3",
        "dense.lr=0.2",
    )
    config = resolve(chains_dir, *words)
    results = run_job(config, tmp_path / "run")
    assert results["ended_by"] == "patience"
    task = open_task(config)
    read_model(find_weights(tmp_path / "run", "best").directory, task.state)
    assert task.evaluate("validation").score == results["best"]["ndcg@10"]
    assert task.evaluate("test").as_dict() == results["test_of_best"]


def test_judging_some_users_judges_always_the_same(chains_dir: Path, tmp_path: Path) -> None:
    words = ("model.kind=sasrec", "stop.max_steps=2", "data.max_validation_users=50", "data.max_test_users=60")
    results = run_job(resolve(chains_dir, *words), tmp_path / "run")
    assert (results["validation"]["num_users"], results["test"]["num_users"]) == (50, 60)
    assert not results["test"]["whole_split"]
    again = run_job(resolve(chains_dir, *words, "data.eval_batch=7"), tmp_path / "again")
    assert again["test"] == results["test"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_has_one_owner_and_first_values_are_the_seed_s(kind: str, chains_dir: Path) -> None:
    torch.manual_seed(1)
    state = open_task(resolve(chains_dir, *KINDS[kind])).state
    torch.manual_seed(2)
    again = open_task(resolve(chains_dir, *KINDS[kind])).state
    owned = [id(parameter) for group in state.optimizer.param_groups for parameter in group["params"]]
    assert sorted(owned) == sorted(id(parameter) for parameter in state.model.parameters())
    assert ("item_vectors" in dict(state.model.named_parameters())) == (state.tables is None)
    for name, value in state.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    if state.tables and again.tables:
        assert torch.equal(state.tables.all_rows(), again.tables.all_rows())


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_weight(chains_dir: Path, tmp_path: Path) -> None:
    config = resolve(chains_dir, "model.kind=sasrec", "dense.kind=sgd", "dense.lr=1e30", "stop.max_epochs=2")
    with pytest.raises(NonFiniteLoss, match=r"the loss of step \d+ is (nan|inf) .*first non-finite tensor"):
        run_job(config, tmp_path / "run")


def test_a_state_of_another_catalogue_is_refused(chains_dir: Path, tmp_path: Path) -> None:
    config = resolve(chains_dir, "model.kind=sasrec", "stop.max_steps=2")
    run_job(config, tmp_path / "run")
    _, other_dir = make_world(tmp_path / "other", seed=9, items=64)
    other = config.with_({"data.dir": str(other_dir)})
    with pytest.raises(RunError, match=r"none of the 1 checkpoints in .* can be used"):
        run_job(other, tmp_path / "run", resume=True)


def rewritten(data_dir: Path, out_dir: Path, change: Callable[[int, int, int], tuple[int, int, int]]) -> Path:
    """The same events with another user, item or time, prepared anew."""
    rows = (data_dir.parent / "world" / EVENTS_FILE).read_text().splitlines()
    changed = [",".join(map(str, change(*map(int, row.split(","))))) for row in rows[1:]]
    out_dir.mkdir()
    (out_dir / EVENTS_FILE).write_text("\n".join([rows[0], *changed]) + "\n")
    preset = EVENT_PRESETS["events"]
    prepare_events(EventJob(out_dir / EVENTS_FILE, out_dir / "prepared", preset.schemas, preset.rules, preset.name))
    return out_dir / "prepared"


def test_weights_are_of_their_items_and_a_run_of_its_events(chains_dir: Path, tmp_path: Path) -> None:
    config = resolve(chains_dir, "model.kind=sasrec", "stop.max_steps=2")
    run_job(config, tmp_path / "run")

    def judge(data_dir: Path, *, is_own_data: bool = True) -> None:
        task = open_task(resolve(data_dir, "model.kind=sasrec"), is_new=False)
        read_model(tmp_path / "run" / "model", task.state, is_own_data=is_own_data)

    renamed = rewritten(chains_dir, tmp_path / "renamed", lambda user, item, time: (user, 1000 - item, time))
    with pytest.raises(RunError, match=r"model was trained on other columns, table sizes or items"):
        judge(renamed)
    more = rewritten(chains_dir, tmp_path / "reversed", lambda user, item, time: (user, item, 10**9 - time))
    judge(more, is_own_data=False)  # other events of the same items may well be judged, if they are meant
    with pytest.raises(
        RunError, match=r"trained on other prepared data than there is now \(identity .{16} then, .{16} now"
    ):
        judge(more)
    for other in (renamed, more):
        with pytest.raises(RunError, match=r"none of the 1 checkpoints in .* can be used"):
            run_job(resolve(other, "model.kind=sasrec", "stop.max_steps=4"), tmp_path / "run", resume=True)
    moved = tmp_path / "moved"
    shutil.copytree(chains_dir, moved)
    run_job(resolve(moved, "model.kind=sasrec", "stop.max_steps=4"), tmp_path / "run", resume=True)


def test_sequences_that_were_swapped_under_a_run_are_noticed(chains_dir: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(chains_dir, data_dir)
    run_job(resolve(data_dir, "model.kind=sasrec", "stop.max_steps=2"), tmp_path / "run")
    evaluate(tmp_path / "run")
    other = rewritten(chains_dir, tmp_path / "other", lambda user, item, time: (user, item, 10**9 - time))
    shutil.rmtree(data_dir)
    shutil.copytree(other, data_dir)
    for use in (evaluate, load_sequence_model):
        with pytest.raises(RunError, match="trained on other prepared data than there is now"):
            use(tmp_path / "run")
    evaluate(tmp_path / "run", data=other)
    load_sequence_model(tmp_path / "run", data=other)


def test_a_way_of_judging_that_the_data_cannot_have_leaves_no_run_behind(chains_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the catalogue has 60 items and a user knows"):
        run_job(resolve(chains_dir, "model.kind=sasrec", "protocol.candidates=uniform"), tmp_path / "run")
    world_dir, preset = chains_dir.parent / "world", EVENT_PRESETS["events"]
    rules = preset.rules.with_({"split": "last"})
    prepare_events(EventJob(world_dir / EVENTS_FILE, tmp_path / "last", preset.schemas, rules, preset.name))
    words = ("model.kind=sasrec", "cadence.evaluate_every_steps=5", "stop.max_steps=10")
    with pytest.raises(ConfigError, match=r"stop.patience = 3 waits for a better validation, and no user of"):
        run_job(resolve(tmp_path / "last", *words, "stop.patience=3"), tmp_path / "run")
    assert open_task(resolve(tmp_path / "last", *words, "stop.patience=3")).evaluate("test").tally.num_users
    assert not (tmp_path / "run").exists()
    results = run_job(resolve(tmp_path / "last", *words), tmp_path / "run")
    assert (results["validation"]["ndcg@10"], results["best"]) == (None, None)
    assert results["test"]["ndcg@10"] > 0


REFUSALS = [
    (
        ("model.kind=sasrec", "data.max_length=6", "data.window_step=7"),
        "data.window_step = 7 leaves events between windows of",
    ),
    (("model.kind=sasrec", "mask.mask_prob=0.1"), r"\[mask\] does nothing for model.kind = sasrec"),
    (("model.kind=sasrec", "tables.kind=adam"), r"\[tables\] moves the rows that a batch has touched"),
    (("model.kind=sasrec", "loss.num_sampled=5"), "loss.num_sampled = 5 does nothing for loss.kind = full"),
    (
        ("model.kind=sasrec", "loss.kind=sampled", "loss.label_smoothing=0.1"),
        "loss.label_smoothing = 0.1 needs all items",
    ),
    (
        ("model.kind=sasrec", "loss.kind=sampled", "loss.sampling=uniform", "loss.sampling_power=0.5"),
        "loss.sampling_power = 0.5 does nothing for loss.sampling = uniform",
    ),
    (("model.kind=sasrec", "stop.target_auroc=0.5"), "lists have no AUROC"),
    (("model.kind=sasrec", "stop.patience=2"), "stop.patience = 2 needs evaluations on the way"),
    (("model.kind=dlrm",), "model.kind = 'dlrm' is not a sequence model"),
    (("model.kind=sasrec", "model.droput=0.1"), "model.droput = 0.1 is not a setting; did you mean model.dropout?"),
]


@pytest.mark.parametrize(("words", "complaint"), REFUSALS)
def test_settings_that_do_not_fit_together(words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        from_tree(SequenceConfig, parse_assignments(words))


def test_a_run_larger_than_memory_is_rejected_with_a_batch_that_fits(chains_dir: Path) -> None:
    large, num_items, num_trained = resolve(chains_dir, "model.kind=sasrec", "data.global_batch=100000000"), 60, 1000
    memory = make_sequence_plan(large, num_items, num_trained=num_trained).total_bytes // 2
    with pytest.raises(ConfigError) as error:
        refuse_large_run(large, num_items, num_trained, memory)
    found = re.search(r"set data.global_batch=(\d+) or less", str(error.value))
    assert found
    refuse_large_run(large.with_({"data.global_batch": int(found[1])}), num_items, num_trained, memory)
