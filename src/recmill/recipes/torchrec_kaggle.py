"""TorchRec's example on the Kaggle log."""

from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import DenseOptimizer, TableOptimizer
from recmill.settings.run import Cadence


def build() -> TrainConfig:
    """TorchRec's DLRM on Criteo Kaggle: dimension 64, 100,000 rows a table, SGD 0.5, batches of 256.

    The layers and tables are `dlrm_main.py`'s own defaults, its batch of 32 on each of eight GPUs.
    Fixed: the last seventh of the log, a day, is held out, where the original evaluates on training rows; x = −3, which
    the log does hold, has a logarithm; the learning rate reaches the tables.
    """
    return TrainConfig(
        data=DataConfig(
            row_schema="kaggle", table_rows=(100_000,) * 26, holdout_frac=1 / 7, global_batch=256, num_lanes=64
        ),
        model=DlrmConfig(embedding_dim=64, bottom=(512, 256, 64), top=(512, 512, 256, 1)),
        tables=TableOptimizer(kind="sgd", lr=0.5),
        dense=DenseOptimizer(kind="sgd", lr=0.5),
        cadence=Cadence(log_every_steps=1_000, evaluate_every_epochs=1.0, save_every_steps=20_000),
    )
