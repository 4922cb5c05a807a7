"""`recmill.config`: recipe, file, run, prepared data and overrides resolve to the same settings everywhere."""

from pathlib import Path

import pytest

import recmill as rm
from recmill.errors import ConfigError, DataError, RunError
from recmill.recipes import RECIPES, find_recipe
from recmill.settings.clicks import TrainConfig
from recmill.settings.sequences import SequenceConfig
from recmill.settings.tree import to_toml


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_a_file_and_settings_resolve_to_themselves(name: str, tmp_path: Path) -> None:
    recipe = find_recipe(name)()
    assert rm.config(name) == rm.config(recipe) == recipe
    (tmp_path / "own.toml").write_text(to_toml(recipe))
    assert rm.config(tmp_path / "own.toml") == recipe
    assert rm.config(str(tmp_path / "own.toml"), overrides=["seed=7"]) == recipe.with_({"seed": 7})


def test_overrides_are_plain_values_or_words() -> None:
    by_values = rm.config("demo", overrides={"dense.lr": 0.5, "model": {"bottom": [8, 16]}, "epochs": 2})
    by_words = rm.config("demo", overrides=["dense.learning_rate=.5", "model.bottom=8,16", "stop.max_epochs=2"])
    assert by_values == by_words
    assert by_values.stop.max_epochs == 2
    assert rm.config("demo", overrides={"threads": 2}).with_({"threads": None}) == rm.config("demo")


def test_another_kind_of_model_leaves_out_what_only_the_first_has() -> None:
    config = rm.config("bert4rec", overrides={"model.kind": "sasrec"})
    assert isinstance(config, SequenceConfig)
    assert (config.mask, config.model.kind) == (None, "sasrec")
    assert rm.config("demo", overrides={"model.kind": "dcn", "model.cross_rank": 4}).model.kind == "dcn"
    full = rm.config("sasrec", overrides={"loss.kind": "full"})
    assert isinstance(full, SequenceConfig)
    assert full.loss.num_sampled is None


def test_prepared_rows_bring_their_settings_along(tiny_world_dir: Path, tmp_path: Path) -> None:
    rm.prepare(tiny_world_dir, out=tmp_path / "rows", preset="recmill")
    config, raw = rm.config("demo", data=tmp_path / "rows"), rm.config("demo", data=tiny_world_dir)
    assert isinstance(config, TrainConfig)
    assert isinstance(raw, TrainConfig)
    assert config.encoding.category == "vocabulary"
    assert config.data.num_table_rows != raw.data.num_table_rows
    encoded = rm.config("demo", data=tiny_world_dir, vocabulary=tmp_path / "rows")
    assert isinstance(encoded, TrainConfig)
    assert encoded.data.num_table_rows == config.data.num_table_rows
    assert Path(encoded.data.vocabulary) == (tmp_path / "rows" / "vocabulary").resolve()
    with pytest.raises(ConfigError, match="is encoded already; leave out --vocabulary"):
        rm.config("demo", data=tmp_path / "rows", vocabulary=tmp_path / "rows")
    with pytest.raises(DataError, match=r"holds prepared rows of clicks, and model.kind = sasrec is a sequence model"):
        rm.config("sasrec", data=tmp_path / "rows")


MISTAKES = [
    ("smal", {}, r"there is no recipe 'smal'; did you mean small\?"),
    ("sasrek", {}, r"there is no recipe 'sasrek'; did you mean sasrec\?"),
    (
        "demo",
        {"model.kind": "sasrec"},
        r"model.kind = sasrec is a sequence model, and demo is a recipe for cl",
    ),
    (
        "sasrec",
        {"model.kind": "dlrm"},
        r"model.kind = dlrm is a click model, and sasrec is a recipe for sequ",
    ),
    ("demo", {"seed.x": 1}, r"seed.x: seed is a single setting, not a section"),
    ("demo", {"data.dir": object()}, r"neither text, number, truth value nor list"),
]


@pytest.mark.parametrize(("source", "overrides", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_named(source: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rm.config(source, overrides=overrides)


def test_a_file_without_a_kind_of_model_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[mask]\nmask_prob = 0.3\n[data]\nmax_length = 20\n")
    with pytest.raises(ConfigError, match=r"^model is not set"):
        rm.config(tmp_path / "own.toml")
    with pytest.raises(RunError, match=r"is not a run directory: it has no config.toml"):
        rm.config(tmp_path)


def test_a_column_of_a_schema_that_is_misspelt_is_shown_its_neighbours(tmp_path: Path) -> None:
    columns = '{name = "y", role = "label", kind = "int", qqqq = 3}'
    (tmp_path / "own.toml").write_text(f"separator = ','\ncolumns = [{columns}]\n")
    with pytest.raises(ConfigError) as caught:
        rm.config("demo", schema=str(tmp_path / "own.toml"))
    assert "columns.0.qqqq = 3 is not a setting; the settings of columns.0 are columns.0.encoding" in str(caught.value)
