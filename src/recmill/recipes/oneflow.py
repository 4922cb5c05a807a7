"""OneFlow's DLRM, which keeps its tables in OneEmbedding."""

from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import ONEFLOW_TABLE_ROWS
from recmill.settings.data import DataConfig
from recmill.settings.encoding import Encoding
from recmill.settings.optimizers import DenseOptimizer, Schedule, TableOptimizer
from recmill.settings.run import Cadence, Stop


def build() -> TrainConfig:
    """OneFlow: DLRM, dimension 128, lower triangle, padded layers, SGD 24 with decay, batches of 55,296.

    75,000 steps, which is 0.989 of an epoch, evaluated every 10,000 on the first half of the last day.
    Fixed: an empty category has a row of its own, the last of its table, and shares it with no value of the next
    column; x < −2 has a logarithm; all rows of the test half are evaluated, and each once; a run resumes exactly.
    """
    return TrainConfig(
        data=DataConfig(
            table_rows=tuple(rows + 1 for rows in ONEFLOW_TABLE_ROWS),
            global_batch=55_296,
            eval_batch=55_296,
            first_half="test",
        ),
        encoding=Encoding(dense="log(x+2)", category="modulo", category_missing="last_row"),
        model=DlrmConfig(
            embedding_dim=128,
            bottom=(512, 256, 128),
            top=(1024, 1024, 512, 256, 1),
            triangle="lower",
            pad_dense=True,
            pad_interaction=True,
            init="normal",
        ),
        tables=TableOptimizer(kind="sgd", lr=24.0),
        dense=DenseOptimizer(kind="sgd", lr=24.0),
        schedule=Schedule(
            kind="oneflow", warmup_steps=2_750, decay_start_step=49_315, decay_steps=27_772, decay_power=2.0
        ),
        cadence=Cadence(log_every_steps=1_000, evaluate_every_steps=10_000, save_every_steps=10_000),
        stop=Stop(max_steps=75_000),
    )
