"""A sequence model for catalogues of a million items on a laptop."""

from recmill.embeddings.table import TableOptimizer
from recmill.models.sasrec import SasRecConfig
from recmill.train.cadence import Cadence, Stop
from recmill.train.config import DenseOptimizer
from recmill.train.schedule import Schedule
from recmill.train.sequence_config import SequenceConfig, SequenceData, SequenceLoss


def build() -> SequenceConfig:
    """SASRec for Goodreads: a million items in the embedding engine, sampled cross entropy, one epoch, 50 events.

    A step moves the vectors of the items it met, and makes no gradient of the catalogue's size. Validation takes 2,000
    users and the test 5,000, always the same; `data.max_test_users=0` takes all.
    """
    return SequenceConfig(
        data=SequenceData(
            max_length=50, window_step=50, global_batch=64, max_validation_users=2000, max_test_users=5000
        ),
        model=SasRecConfig(embedding_dim=64, num_blocks=2, num_heads=2, dropout_frac=0.1),
        loss=SequenceLoss(kind="sampled", num_sampled=1024),
        tables=TableOptimizer(kind="adam", lr=0.003),
        dense=DenseOptimizer(kind="adam", lr=0.002),
        schedule=Schedule(warmup_steps=200),
        cadence=Cadence(log_every_steps=100, save_every_steps=500),
        stop=Stop(max_epochs=1),
    )
