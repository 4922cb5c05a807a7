import pytest

from recmill.errors import ConfigError
from recmill.models.click.projection import Projection
from recmill.settings.click_models import ProjectionConfig
from tests.models.twins import CATEGORIES, DENSE, NUM_DENSE, D, assert_twins, build_tables, linear_pairs


def test_the_whole_model_equals_torchrecs_with_the_same_weights() -> None:
    """With branches of unlike numbers of vectors, which tells M from N."""
    from torchrec.models.dlrm import DLRM_Projection

    config = ProjectionConfig(embedding_dim=D, bottom=(8, D), top=(7, 1), branch1=(9, 2 * D), branch2=(3 * D,))
    ours = Projection(config, DENSE, CATEGORIES, seed=0)
    theirs = DLRM_Projection(build_tables(), NUM_DENSE, [8, D], [7, 1], [9, 2 * D], [3 * D])
    pairs = [
        *linear_pairs(ours.bottom, theirs.dense_arch),
        *linear_pairs(ours.branch1, theirs.inter_arch.interaction_branch1),
        *linear_pairs(ours.branch2, theirs.inter_arch.interaction_branch2),
        *linear_pairs(ours.top, theirs.over_arch),
    ]
    assert_twins(ours, theirs, pairs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"branch1": (64, 40)}, r"model.branch1 ends in 40: .* model.embedding_dim = 16; .* multiple"),
        ({"branch2": (24,)}, r"model.branch2 ends in 24"),
        ({"branch2": ()}, r"model.branch2 = \[\]: it needs at least one layer"),
        ({"bottom": (8,)}, r"model.bottom ends in 8"),
    ],
)
def test_layers_that_do_not_fit_are_refused(changes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProjectionConfig(**changes)
