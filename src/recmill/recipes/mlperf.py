"""The layers of MLPerf's DLRM, with tables cut to fit one machine's memory."""

from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import capped_table_rows
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import Schedule
from recmill.settings.run import Cadence


def build() -> TrainConfig:
    """DLRM with dimension 128 and MLPerf's layers, tables of the published profile, 1 million rows in all."""
    return TrainConfig(
        data=DataConfig(table_rows=capped_table_rows(1_000_000), global_batch=4096),
        model=DlrmConfig(embedding_dim=128, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1)),
        schedule=Schedule(warmup_steps=500),
        cadence=Cadence(log_every_steps=20, evaluate_every_steps=5_000, save_every_steps=5_000),
    )
