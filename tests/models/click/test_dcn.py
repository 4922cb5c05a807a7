import pytest
import torch

from recmill.errors import ConfigError
from recmill.models.click.dcn import Dcn
from recmill.models.parts.cross import CrossNet
from recmill.settings.click_models import DcnConfig
from recmill.settings.tree import from_tree
from tests.models.twins import CATEGORIES, DENSE, NUM_DENSE, D, assert_twins, build_tables, linear_pairs


def test_the_whole_model_equals_torchrecs_with_the_same_weights() -> None:
    from torchrec.models.dlrm import DLRM_DCN

    config = DcnConfig(embedding_dim=D, bottom=(8, D), top=(7, 5, 1), cross_layers=3, cross_rank=5)
    ours = Dcn(config, DENSE, CATEGORIES, seed=0)
    theirs = DLRM_DCN(build_tables(), NUM_DENSE, [8, D], [7, 5, 1], dcn_num_layers=3, dcn_low_rank_dim=5)
    crossnet = theirs.inter_arch.crossnet
    pairs = linear_pairs(ours.bottom, theirs.dense_arch) + linear_pairs(ours.top, theirs.over_arch)
    for i, layer in enumerate(ours.cross.layers):
        pairs += zip(layer.parameters(), (crossnet.V_kernels[i], crossnet.W_kernels[i], crossnet.bias[i]), strict=True)
    assert_twins(ours, theirs, pairs)


def test_cross_layers_start_as_published_from_streams_of_their_own() -> None:
    first, second = CrossNet(300, 2, 200, seed=0).layers
    for layer in (first, second):
        assert not layer.get_parameter("bias").any()
        for name in ("v", "w"):
            assert float(layer.get_parameter(name).detach().std()) == pytest.approx((2 / 500) ** 0.5, rel=0.02)
    assert not torch.equal(first.get_parameter("v"), second.get_parameter("v"))
    torch.manual_seed(3)
    again = CrossNet(300, 2, 200, seed=0).layers[0]
    assert torch.equal(again.get_parameter("w"), first.get_parameter("w"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cross_rank": 0}, r"model.cross_rank = 0 is rejected: input should be greater than or equal to 1"),
        ({"cross_layers": -1}, r"model.cross_layers = -1 is rejected"),
        ({"bottom": [8]}, r"model.bottom ends in 8 and model.embedding_dim is 16"),
        ({"top": [8]}, r"model.top ends in 8; a click model ends in 1"),
    ],
)
def test_layers_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_tree(DcnConfig, settings, prefix="model.")
