import pytest
import torch

from recmill.errors import ConfigError
from recmill.models.click.dnn import Dnn
from recmill.settings.click_models import DnnConfig
from tests.models.twins import CATEGORIES, DENSE, NUM_DENSE, B, D, F


@pytest.mark.parametrize("wide", [False, True])
def test_the_model_equals_its_formula(wide: bool) -> None:
    config = DnnConfig(embedding_dim=D, top=(8, 1), wide=wide)
    assert config.table_dim == (D + 1 if wide else D)
    model = Dnn(config, DENSE, CATEGORIES, seed=0)
    dense, rows_BFD = torch.randn(B, NUM_DENSE), torch.randn(B, F, config.table_dim)
    features = torch.cat([dense, rows_BFD[:, :, :D].reshape(B, F * D)], dim=1)
    expected = model.top[2](torch.relu(model.top[0](features))).squeeze(1)
    if model.wide is not None:
        linear = dense @ model.wide.weight[0] + model.wide.bias
        expected = expected + linear + sum(rows_BFD[:, f, D] for f in range(F))
    torch.testing.assert_close(model(dense, rows_BFD), expected)


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.top ends in 3; a click model ends in 1"):
        DnnConfig(top=(8, 3))
    with pytest.raises(ConfigError, match=r"model.top = \[\]: it needs at least one layer"):
        DnnConfig(top=())
