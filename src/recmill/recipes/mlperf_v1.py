"""MLPerf's first DLRM: dot products, one value per category, SGD."""

from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import PUBLISHED_TABLE_ROWS
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import DenseOptimizer, TableOptimizer
from recmill.settings.run import Cadence, Stop


def build() -> TrainConfig:
    """MLPerf v1: DLRM, dimension 128, 204 million table rows, SGD with rate 1 and batches of 2,048.

    The 24 days of Criteo 1TB, one epoch, evaluated twenty times, ended early at AUROC 0.8025.
    Fixed: the learning rate reaches the tables; ids are never rounded through float32; the numbers' offset is the same
    for all files; evaluations count every row once.
    """
    return TrainConfig(
        data=DataConfig(table_rows=PUBLISHED_TABLE_ROWS, global_batch=2048),
        model=DlrmConfig(embedding_dim=128, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1)),
        tables=TableOptimizer(kind="sgd", lr=1.0),
        dense=DenseOptimizer(kind="sgd", lr=1.0),
        cadence=Cadence(log_every_steps=1000, evaluate_every_epochs=0.05, save_every_steps=20_000),
        stop=Stop(target_auroc=0.8025),
    )
