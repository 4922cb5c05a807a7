"""The first run: small enough for two minutes on a laptop, large enough to learn the planted rule."""

from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import scaled_table_rows
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import DenseOptimizer, Schedule, TableOptimizer
from recmill.settings.run import Cadence

SYNTH_SCALE = 0.001


def build() -> TrainConfig:
    """DLRM for the synthetic world at scale 0.001: a few minutes from raw text to its AUROC, on two cores."""
    return TrainConfig(
        data=DataConfig(
            # A table's row is the value modulo its size, so values meet by chance. Four rows for each value, and
            # never fewer than 5,000, keep most of them apart.
            table_rows=tuple(max(5_000, 4 * rows) for rows in scaled_table_rows(SYNTH_SCALE)),
            global_batch=1024,
        ),
        model=DlrmConfig(embedding_dim=16, bottom=(64, 16), top=(128, 64, 1)),
        tables=TableOptimizer(kind="rowwise_adagrad", lr=0.1),
        dense=DenseOptimizer(kind="adagrad", lr=0.01),
        schedule=Schedule(warmup_steps=100, decay_start_step=500, decay_steps=350, decay_power=1.0),
        cadence=Cadence(log_every_steps=100, evaluate_every_steps=0, save_every_steps=0),
    )
