"""A DLRM for Criteo logs on a laptop: the published shape with embeddings of 16."""

from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import capped_table_rows
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import Schedule
from recmill.settings.run import Cadence


def build() -> TrainConfig:
    """DLRM with dimension 16 and tables of the published profile, 4 million rows in all."""
    return TrainConfig(
        data=DataConfig(table_rows=capped_table_rows(4_000_000), global_batch=2048),
        model=DlrmConfig(embedding_dim=16, bottom=(512, 256, 64, 16), top=(512, 256, 1)),
        schedule=Schedule(warmup_steps=500),
        cadence=Cadence(log_every_steps=100, evaluate_every_steps=10_000, save_every_steps=10_000),
    )
