import tomllib

import pytest

from recmill.cli.main import main
from recmill.recipes import RECIPES, find_recipe
from recmill.settings.families import family_of
from recmill.settings.tree import from_tree


def test_the_list_has_a_line_for_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*RECIPES]
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_shown_is_the_recipe_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", name]) == 0
    shown, expected = capsys.readouterr().out, find_recipe(name)()
    assert shown.startswith("# ")
    assert from_tree(family_of(expected).config, tomllib.loads(shown)) == expected


def test_a_name_that_is_none_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "mlperf-dcn"]) == 2
    assert "there is no recipe 'mlperf-dcn'; did you mean mlperf-dcnv2?" in capsys.readouterr().err


def test_bert4rec_is_judged_and_ended_by_steps_that_mean_the_same_for_any_data() -> None:
    """ML-100k has 18 steps in an epoch: 25 epochs of patience could end a run while a long warm-up still rises."""
    config = find_recipe("bert4rec")()
    every = config.cadence.evaluate_every_steps
    assert (config.stop.max_epochs, config.cadence.evaluate_every_epochs) == (0, 0)
    assert 0 < config.schedule.warmup_steps < every
    assert every * config.stop.patience < config.schedule.decay_start_step
    assert config.schedule.decay_start_step + config.schedule.decay_steps == config.stop.max_steps
