from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recmill.errors import ConfigError
from recmill.recipes import RECIPES, find_recipe
from recmill.settings.click_models import CONFIGS, DcnConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.families import family_of
from recmill.settings.reflect import setting_keys
from recmill.settings.tree import from_tree, laid_over, layered, parse_assignments, read_toml, to_toml, value_at

TREE = find_recipe("demo")().model_dump(mode="json", exclude_none=True)


def resolve(*assignments: str) -> TrainConfig:
    return from_tree(TrainConfig, laid_over(TREE, parse_assignments(assignments)))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives_toml_and_describes_itself(name: str, tmp_path: Path) -> None:
    config = find_recipe(name)()
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert from_tree(family_of(config).config, read_toml(path)) == config
    assert find_recipe(name).__doc__


@given(
    seed=st.integers(0, 2**63 - 1),
    lr=st.floats(1e-30, 1e30),
    epochs=st.integers(0, 5),
    directory=st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    bottom=st.lists(st.integers(1, 999), max_size=3),
)
def test_resolved_settings_read_back_as_themselves(
    seed: int, lr: float, epochs: int, directory: str, bottom: list[int]
) -> None:
    tree = laid_over(
        TREE,
        {
            "seed": seed,
            "dense": {"lr": lr},
            "stop": {"max_epochs": epochs},
            "data": {"dir": directory},
            "model": {"bottom": [*bottom, 16]},
        },
    )
    import tomllib

    config = from_tree(TrainConfig, tree)
    assert from_tree(TrainConfig, tomllib.loads(to_toml(config))) == config


def test_assignments_set_one_setting_each() -> None:
    config = resolve("seed=5", "dense.lr = 1", "model.bottom=[4, 16]", "encoding.dense=log(x+2)", "data.dir='a b'")
    assert (config.seed, config.dense.lr, value_at(config, "model.bottom")) == (5, 1.0, (4, 16))
    assert (config.encoding.dense, config.data.dir) == ("log(x+2)", "a b")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            "dense.learning_rat=3",
            r"^dense.learning_rat = 3 is not a setting; did you mean dense.lr\?$",
        ),
        ("dens.lr=3", r"^dens = \{\"lr\": 3\} is not a setting; did you mean dense\?$"),
        ("velocity=3", r"^velocity = 3 is not a setting; there are average, baselines, cadence, data, dense, "),
        ("data.globl_batch=3", r"data.globl_batch = 3 is not a setting; did you mean data.global_batch\?"),
        ("global_batch=3", r"global_batch = 3 is not a setting; did you mean data.global_batch\?"),
        ("dense.lr=fast", r'dense.lr = "fast" is rejected: input should be a valid number'),
        ("data.global_batch=2.5", r"data.global_batch = 2.5 is rejected: .*integer"),
        ("data.global_batch='8'", r'data.global_batch = "8" is rejected: .*integer'),
        ("seed=true", r"seed = true is rejected: .*integer"),
        ("dense.lr=-1", r"dense.lr = -1 is rejected: input should be greater than 0"),
        ("dense.lr=nan", r"dense.lr = NaN is rejected: .*finite"),
        ("tables.kind=lamb", r"tables.kind = 'lamb' is not a table optimizer; choose from sgd, adagrad"),
        ("data.table_rows=[1, 2]", r"data.table_rows has 2 numbers; schema criteo has 26"),
        ("data.bad_rows=ignore", r"data.bad_rows"),
        ("data.train_files=['a']", r"are given together or not at all"),
        (
            "model.kind=dlrn",
            r"model.kind = 'dlrn' is not a click model; choose from dlrm, dcn, projection, finalmlp, dnn",
        ),
        ("model=3", r"model = 3 is not a section of settings; name a model with model.kind"),
        ("model.kind=[1]", r"model.kind = \[1\] is not a click model"),
        (
            "model.botom=[16]",
            r"^model.botom = \[16\] is not a setting; did you mean model.bottom\? \(model.kind is dlrm\)$",
        ),
        (
            "model.cross_rank=5",
            r"model.cross_rank = 5 is not a setting; the settings of model are [^(]*\(model.kind is dlrm\)$",
        ),
        ("model.triangle=left", r"model.triangle = \"left\" is rejected: input should be 'upper' or 'lower'"),
        ("model.dropout=1", r"model.dropout = 1 is rejected: input should be less than 1"),
        ("model.pooling=max", r"model.pooling = \"max\" is rejected"),
        ("seed.x=1", r"seed is a single setting, not a section"),
        ("seed", r"--set seed is not of the form section.key=value"),
        ("data.dir=12:00:00", r"neither text, number"),
    ],
)
def test_wrong_settings_name_the_key_the_value_and_the_way_out(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(assignment)


def test_settings_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no settings file"):
        read_toml(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="is a directory"):
        read_toml(tmp_path)
    (tmp_path / "broken.toml").write_text("a = = 1")
    with pytest.raises(ConfigError, match=r"broken.toml is not TOML: .*line 1"):
        read_toml(tmp_path / "broken.toml")


def test_a_strange_recipe_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'smal'; did you mean small"):
        find_recipe("smal")


def test_every_key_can_be_looked_up() -> None:
    config = resolve()
    keys = list(setting_keys(TrainConfig))
    assert "schedule.warmup_steps" in keys
    assert len(keys) == len(set(keys))
    for key in keys:
        value_at(config, key)


def test_a_model_without_a_kind_is_a_dlrm() -> None:
    tree = {**TREE, "model": {name: TREE["model"][name] for name in ("embedding_dim", "bottom", "top")}}
    assert from_tree(TrainConfig, tree) == resolve()


@pytest.mark.parametrize("kind", CONFIGS)
def test_settings_of_any_model_read_back_as_themselves(kind: str) -> None:
    import tomllib

    config = from_tree(TrainConfig, {**TREE, "model": {"kind": kind, "pooling_by_column": {"cat_3": "mean"}}})
    assert type(config.model) is CONFIGS[kind]
    assert from_tree(TrainConfig, tomllib.loads(to_toml(config))) == config


def test_another_kind_of_model_keeps_what_it_shares_with_the_recipes() -> None:
    changes = {"model": {"kind": "dcn", "cross_rank": 7}}
    config = from_tree(TrainConfig, layered(TrainConfig, TREE, changes))
    assert isinstance(config.model, DcnConfig)
    assert (config.model.bottom, config.model.cross_rank) == ((64, 16), 7)
    assert layered(TrainConfig, TREE, {"model": {"bottom": [16]}})["model"] == {**TREE["model"], "bottom": [16]}
    assert layered(TrainConfig, TREE, {"model": {"kind": "dlrm"}}) == TREE


def test_settings_are_frozen() -> None:
    config = resolve()
    with pytest.raises(Exception, match="frozen"):
        config.seed = 3
