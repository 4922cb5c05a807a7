"""Every model is put together by its kind, and obeys the laws."""

from pathlib import Path

import pytest
import torch

from recmill.errors import ConfigError
from recmill.models.parts.dropout import train_at
from recmill.settings.click_models import CONFIGS
from recmill.training.click.assemble import MODELS, assemble, build_model
from recmill.training.click.evaluate import evaluate
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import first_non_finite, take_step
from recmill.training.click.task import ClickTask
from recmill.training.loop.loop import train
from tests.laws.kill import model_bytes
from tests.laws.moves import assert_moves_what_it_touches
from tests.laws.owners import assert_one_owner_each
from tests.training.conftest import OpenRun, ResolveModel

KINDS = {
    "dlrm": ("bottom=[8, 4]", "top=[8, 1]"),
    "dcn": ("bottom=[8, 4]", "top=[8, 1]", "cross_layers=2", "cross_rank=3"),
    "projection": ("bottom=[8, 4]", "top=[8, 1]", "branch1=[8]", "branch2=[12]"),
    "finalmlp": ("stream1=[8, 6]", "stream2=[8, 4]", "heads=2", "gate_hidden=[5]", "gate1_columns=['cat_1']"),
    "dnn": ("top=[8, 1]", "wide=true"),
}


def test_every_kind_has_settings_a_model_and_a_test() -> None:
    assert {*MODELS, "custom"} == CONFIGS.keys() == {*KINDS, "custom"}, "layers of one's own have no model here"
    for kind, config in CONFIGS.items():
        assert config().model_dump()["kind"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_moves_the_rows_it_touches_and_all_layers(kind: str, resolve_model: ResolveModel) -> None:
    parts = assemble(resolve_model(kind, *KINDS[kind]))
    assert_one_owner_each(parts)
    with Inputs(parts.config) as inputs, inputs.open_training(None) as stream:
        batch = next(stream)
    before = {name: parameter.detach().clone() for name, parameter in parts.model.named_parameters()}
    assert_moves_what_it_touches(parts.tables, batch.columns.ids, lambda: take_step(parts, batch, 0))
    for name, parameter in parts.model.named_parameters():
        assert not torch.equal(before[name], parameter), name
    assert first_non_finite(parts, batch) == "the loss itself"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_stops_and_goes_on_ends_with_the_same_bytes(
    kind: str, resolve_model: ResolveModel, open_run: OpenRun, tmp_path: Path
) -> None:
    """With dropout, batch norm and rates, which have to survive; evaluating in between is no matter."""
    norm = ("batch_norm=true",) if "batch_norm" in CONFIGS[kind].model_fields else ()
    settings = (*KINDS[kind], "dropout=0.3", "target_encoding_folds=3", *norm)
    results = []
    for stops in ((13,), (4, 9, 13)):
        for stop in stops:
            config = resolve_model(kind, *settings).with_({"stop.max_steps": stop})
            parts = assemble(config)
            with Inputs(config) as inputs, open_run(ClickTask(parts, inputs)) as run:
                progress = train(run, ClickTask(parts, inputs))
                evaluation = evaluate(parts, inputs, "test")
                run.finish(progress, ClickTask(parts, inputs))
        results.append((model_bytes(run.dir), evaluation.result))
        run.dir.rename(tmp_path / f"run_{len(stops)}")
    assert results[0] == results[1]


def test_dropout_and_batch_norm_rest_while_judging(resolve_model: ResolveModel) -> None:
    config = resolve_model("dnn", "top=[8, 1]", "dropout=0.5", "batch_norm=true")
    parts = assemble(config)
    with Inputs(config) as inputs:
        with inputs.open_training(None) as stream:
            for step in range(3):
                take_step(parts, next(stream), step)
        before = {name: tensor.clone() for name, tensor in parts.model.state_dict().items()}
        assert evaluate(parts, inputs, "test").result == evaluate(parts, inputs, "test").result
    for name, tensor in parts.model.state_dict().items():
        assert torch.equal(before[name], tensor), name
    assert int(before["top.1.num_batches_tracked"]) == 3


def test_values_of_a_column_are_pooled_as_the_settings_say(resolve_model: ResolveModel) -> None:
    by_column = "pooling_by_column={cat_1 = 'sum'}"
    parts = assemble(resolve_model("dnn", "top=[8, 1]", "pooling=mean", by_column))
    assert [spec.pooling for spec in parts.tables.specs] == ["mean", "sum", *["mean"] * 24]


def test_columns_that_the_data_have_not_are_refused_with_the_settings(resolve_model: ResolveModel) -> None:
    with pytest.raises(ConfigError, match=r"model.pooling_by_column names 'cat_26'"):
        resolve_model("dlrm", *KINDS["dlrm"], "pooling_by_column={cat_26 = 'mean'}")
    with pytest.raises(ConfigError, match=r"model.gate1_columns names 'age'"):
        resolve_model("finalmlp", "gate_hidden=[5]", "gate1_columns=['age']")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_takes_numbers_measured_and_spread(kind: str, resolve_model: ResolveModel) -> None:
    spread = ("dense_norm=true", "dense_knots=[0.0, 1.0, 2.0]", "embedding_dropout=0.1")
    gates = ("gate1_columns=['int_1', 'cat_2']",) if kind == "finalmlp" else ()
    config = resolve_model(kind, *KINDS[kind], *spread, *gates)
    model = build_model(config)
    train_at(model, 0)
    logits = model(torch.rand(7, 13), torch.rand(7, 26, config.model.table_dim))
    assert logits.shape == (7,)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not any("knots" in name for name in model.state_dict())
