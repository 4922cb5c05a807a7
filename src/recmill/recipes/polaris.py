"""DLRM as it was traced on Polaris: MLPerf's layers on one day, cut into 24."""

from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import FREQUENT_TABLE_ROWS
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import DenseOptimizer, TableOptimizer
from recmill.settings.run import Cadence, Stop


def build() -> TrainConfig:
    """DLRM on Polaris: dimension 128, tables of values seen three times, SGD 0.1, three epochs, batches of 32,768.

    For `recmill split day_0 --parts 24 --rows 5000000`. The published batch is 8,192 on each of four GPUs.
    Fixed: the split says so when the file is too short; results are written once, also when a run dies.
    """
    return TrainConfig(
        data=DataConfig(table_rows=FREQUENT_TABLE_ROWS, global_batch=32_768),
        model=DlrmConfig(embedding_dim=128, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1)),
        tables=TableOptimizer(kind="sgd", lr=0.1),
        dense=DenseOptimizer(kind="sgd", lr=0.1),
        cadence=Cadence(log_every_steps=100, evaluate_every_epochs=1.0, save_every_steps=1_000),
        stop=Stop(max_epochs=3),
    )
