"""DCNv2 as published with Ray Train and Ray Data."""

from recmill.settings.click_models import DcnConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import REDUCED_TABLE_ROWS
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import DenseOptimizer, TableOptimizer
from recmill.settings.run import Cadence


def build() -> TrainConfig:
    """Ray's recommender: DCNv2, dimension 128, its large tables a hundredth, Adagrad 0.005, batches of 32,768.

    The published batch is 4,096 for each of eight workers, 8,192 in validation, every 1,000 steps.
    Fixed: ids stay inside their tables, where the original lets rare ones fall on row 0; rows are shuffled; a
    run goes on where it stopped and ends at its limits.
    """
    return TrainConfig(
        data=DataConfig(table_rows=REDUCED_TABLE_ROWS, global_batch=32_768, eval_batch=8_192, drop_last=True),
        model=DcnConfig(
            embedding_dim=128,
            bottom=(512, 256, 128),
            top=(1024, 1024, 512, 256, 1),
            cross_layers=3,
            cross_rank=512,
        ),
        tables=TableOptimizer(kind="adagrad", lr=0.005, eps=1e-8),
        dense=DenseOptimizer(kind="adagrad", lr=0.005, eps=1e-8),
        cadence=Cadence(log_every_steps=100, evaluate_every_steps=1_000, save_every_steps=1_000, keep_checkpoints=1),
    )
