import json

import pytest

from recmill.cli.main import main
from recmill.recipes import RECIPES, find_recipe
from recmill.settings.families import CLICK, family_of


def test_the_first_mlperf_model_needs_what_was_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "mlperf-v1", "--memory", "64GiB"]) == 2
    told = capsys.readouterr().out
    assert "204,184,588" in told
    assert "97.36" in told
    assert "does not fit" in told
    cap = int(told.split("data.max_rows_per_table=")[1])
    assert main(["plan", "mlperf-v1", "--memory", "64GiB", "--set", f"data.max_rows_per_table={cap}"]) == 0
    assert "fits: 64.00 GiB are there" in capsys.readouterr().out
    assert main(["plan", "mlperf-v1", "--memory", "64GiB", "--set", f"data.max_rows_per_table={cap + 1}"]) == 2


def test_all_numbers_come_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "small", "--json", "--memory", "8GiB"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["rows"] == sum(table["rows"] for table in plan["tables"]) == 3_999_999
    assert plan["weight_bytes"] == plan["rows"] * 16 * 4
    # 13-512-256-64-16 and 367-512-256-1, weights and biases
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 64 + 64 + 64 * 16 + 16
    top = 367 * 512 + 512 + 512 * 256 + 256 + 256 + 1
    assert plan["dense_parameters"] == bottom + top
    assert plan["fits"] is True


def test_memory_that_no_table_size_could_save_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "small", "--memory", "100MiB"]) == 2
    assert "smaller tables do not help" in capsys.readouterr().out


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_plan(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    is_click = family_of(find_recipe(name)()) is CLICK
    items = [] if is_click else ["--items", "1000"]
    assert main(["plan", name, "--memory", "1000GiB", "--json", *items]) == 0
    plan = json.loads(capsys.readouterr().out)
    if is_click:
        assert plan["flops_per_row"] > 2 * plan["dense_parameters"] * 0.9
    else:
        assert plan["total_bytes"] > plan["item_bytes"] > 1000 * 4


def test_evaluations_count_if_their_batches_take_more(capsys: pytest.CaptureFixture[str]) -> None:
    batch_bytes = []
    for eval_batch in (1, 4096, 16_384, 32_768):
        assert main(["plan", "small", "--json", "--memory", "8GiB", "--set", f"data.eval_batch={eval_batch}"]) == 0
        batch_bytes.append(json.loads(capsys.readouterr().out)["batch_bytes"])
    assert batch_bytes[0] < batch_bytes[2] < batch_bytes[3] == 2 * batch_bytes[2]
    assert batch_bytes[0] == pytest.approx(batch_bytes[1], rel=0.02), "a step is about two evaluations of its rows"


def test_tables_in_tiers_are_planned_and_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "mlperf-v1", "--memory", "24GiB"]) == 2
    told = capsys.readouterr().out
    assert "it would with --set store.kind=cached_ssd --set store.cache_memory=" in told
    budget = told.split("store.cache_memory=")[1].split(",")[0]
    tiered = ["--set", "store.kind=cached_ssd", "--set", f"store.cache_memory={budget}"]
    assert main(["plan", "mlperf-v1", "--memory", "24GiB", *tiered]) == 0
    told = capsys.readouterr().out
    assert "to know where each row is" in told
    assert "each of 2 kept checkpoints may hold as much again" in told
    assert "fits: 24.00 GiB are there" in told
    assert main(["plan", "mlperf-v1", "--json", "--memory", "24GiB", *tiered]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["tiers"]["index_bytes"] == 16 * plan["rows"]
    assert plan["tiers"]["disk_bytes"] > 1.5 * plan["table_bytes"]
