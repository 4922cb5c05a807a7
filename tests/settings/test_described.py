"""Every setting says what it is, under one name, and none of them costs torch or a kernel."""

import importlib
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

import recmill.settings
from recmill.errors import ConfigError
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import DataConfig
from recmill.settings.families import CLICK, SEQUENCE, family_of_tree
from recmill.settings.optimizers import DenseOptimizer
from recmill.settings.protocol import Protocol
from recmill.settings.reflect import setting_keys
from recmill.settings.sequences import SequenceConfig
from recmill.settings.tree import RenamedSetting, Settings, from_tree, to_toml


def all_settings() -> Iterator[type[Settings]]:
    for module in pkgutil.iter_modules(recmill.settings.__path__, "recmill.settings."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Settings) and value.__module__ == module.name:
                yield value


@pytest.mark.parametrize("kind", list(all_settings()), ids=lambda kind: kind.__name__)
def test_every_field_is_described(kind: type[Settings]) -> None:
    for name, field in kind.model_fields.items():
        assert field.description, f"{kind.__name__}.{name}"
        assert field.description.endswith("."), f"{kind.__name__}.{name}"
    for old, rename in kind.renamed.items():
        assert rename.key in kind.model_fields, f"{kind.__name__}: {old} became {rename.key}"
    assert not kind.aliases.keys() & kind.model_fields.keys()


def test_settings_and_recipes_cost_neither_torch_nor_kernels() -> None:
    program = (
        "import sys, recmill.settings.families, recmill.settings.events, recmill.recipes.resolve as resolve\n"
        "from recmill.recipes import RECIPES, find_recipe\n"
        "[find_recipe(name)() for name in RECIPES]\n"
        "resolve.config('sasrec', overrides={'epochs': 3})\n"
        "print(sorted({'torch', 'numba', 'polars', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_everybody_types_is_understood() -> None:
    config = from_tree(
        TrainConfig, {"data": {"table_rows": [9] * 26}, "epochs": 3, "batch_size": 64, "dense": {"learning_rate": 0.5}}
    )
    assert (config.stop.max_epochs, config.data.global_batch, config.dense.lr) == (3, 64, 0.5)
    with pytest.raises(ConfigError, match=r"batch_size and data.global_batch are one setting, given twice"):
        from_tree(TrainConfig, {"data": {"table_rows": [9] * 26, "global_batch": 32}, "batch_size": 64})
    with pytest.raises(ConfigError, match=r"dense.learning_rate and dense.lr are one setting, given twice"):
        from_tree(TrainConfig, {"data": {"table_rows": [9] * 26}, "dense": {"learning_rate": 0.1, "lr": 0.2}})


def test_former_names_work_and_say_what_to_write() -> None:
    tree = {
        "model": {"kind": "bert4rec", "dropout_frac": 0.3, "attention_dropout_frac": 0.2, "item_init": "neighbours"},
        "mask": {"frac": 0.4, "only_last_frac": 0.1},
        "protocol": {"seen": "kept"},
    }
    with pytest.warns(RenamedSetting) as caught:
        config = from_tree(SequenceConfig, tree)
    told = {str(warning.message) for warning in caught}
    assert 'protocol.seen = "kept" is an old name, which still works; write protocol.filter_seen = false' in told
    assert "model.dropout_frac = 0.3 is an old name, which still works; write model.dropout = 0.3" in told
    assert len(told) == 6
    assert (config.model.dropout, config.model.attention_dropout, config.model.item_init) == (0.3, 0.2, "co_occurrence")
    assert (config.masking.mask_prob, config.masking.only_last_prob, config.protocol.filter_seen) == (0.4, 0.1, False)
    assert from_tree(SequenceConfig, tomllib.loads(to_toml(config))) == config, "and are written by their present names"
    with pytest.warns(RenamedSetting):
        assert Protocol(seen="removed") == Protocol()


def test_all_mistakes_are_reported_at_once() -> None:
    tree = {
        "data": {"table_rows": [9] * 26, "globl_batch": 3, "eval_batch": 0},
        "dense": {"lr": -1, "kind": "sdg"},
        "model": {"kind": "dlrm", "botom": [16], "top": [8]},
        "velocity": 3,
    }
    with pytest.raises(ConfigError) as caught:
        from_tree(TrainConfig, tree)
    told = str(caught.value).splitlines()
    for beginning in (
        "data.globl_batch = 3 is not a setting; did you mean data.global_batch?",
        "data.eval_batch = 0 is rejected",
        "dense.lr = -1 is rejected",
        'dense.kind = "sdg" is rejected',
        "model.botom = [16] is not a setting; did you mean model.bottom?",
        "velocity = 3 is not a setting; there are ",
    ):
        assert any(line.startswith(beginning) for line in told), (beginning, told)


def test_problems_of_a_section_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        DataConfig(table_rows=(0, 1), multi_hot_distribution="pareto", holdout_frac=0.1, holdout_rows=7)
    assert len(str(caught.value).splitlines()) == 4


def test_with_validates() -> None:
    dense = DenseOptimizer()
    assert dense.with_({"lr": 0.5}).lr == dense.with_({"learning_rate": 0.5}).lr == 0.5
    with pytest.raises(ConfigError, match=r"lr = -1 is rejected"):
        dense.with_({"lr": -1})
    with pytest.raises(ConfigError, match=r"learning_rat = 1 is not a setting; did you mean lr|the settings|there are"):
        dense.with_({"learning_rat": 1})


def test_the_family_of_plain_data_is_found_without_a_kind() -> None:
    assert family_of_tree({"model": {"kind": "sasrec"}}) is SEQUENCE
    assert family_of_tree({"model": {"kind": "dcn"}, "mask": {"last": True}}) is CLICK
    assert family_of_tree({"mask": {"mask_prob": 0.2}, "seed": 3}) is SEQUENCE
    assert family_of_tree({"data": {"max_length": 20}}) is SEQUENCE
    assert family_of_tree({"encoding": {"dense": "log(x+2)"}}) is CLICK
    assert family_of_tree({}) is CLICK
    assert len(set(setting_keys(SequenceConfig)) - set(setting_keys(TrainConfig))) > 20
