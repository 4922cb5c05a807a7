"""A sequence model for catalogues of a million items on a laptop."""

from recmill.settings.optimizers import DenseOptimizer, Schedule, TableOptimizer
from recmill.settings.run import Cadence, Stop
from recmill.settings.sequence_models import SasRecConfig
from recmill.settings.sequences import SequenceConfig, SequenceData, SequenceLoss


def build() -> SequenceConfig:
    """SASRec for Goodreads: a million items in the embedding engine, sampled cross entropy, one epoch, 50 events.

    A step moves the vectors of the items it met, and makes no gradient of the catalogue's size. Most items are met less
    than ten times, so that their vectors begin alike with those of their neighbours, and what followed the three newest
    events in training is added to the scores, by a weight chosen on validation. Learning rates fall in the second half
    of the epoch's 2,899 steps. Validation takes 2,000 users and the test 5,000, always the same;
    `data.max_test_users=0` takes all. What the network scores alone stands among the baselines.
    """
    return SequenceConfig(
        data=SequenceData(max_length=50, global_batch=64, max_validation_users=2000, max_test_users=5000),
        model=SasRecConfig(
            embedding_dim=64,
            num_blocks=2,
            num_heads=2,
            dropout=0.0,
            init_std=0.02,
            item_init="co_occurrence",
            item_rounds=5,
            item_std=0.15,
            transition_weight=3.0,
            transition_events=3,
        ),
        loss=SequenceLoss(kind="sampled", num_sampled=1024),
        tables=TableOptimizer(kind="adam", lr=0.001),
        dense=DenseOptimizer(kind="adam", lr=0.002),
        schedule=Schedule(warmup_steps=50, decay_start_step=1400, decay_steps=1500),
        cadence=Cadence(log_every_steps=100, save_every_steps=500),
        stop=Stop(max_epochs=1),
    )
