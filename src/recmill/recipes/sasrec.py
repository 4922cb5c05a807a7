"""SASRec with cross entropy in place of one negative, item vectors that begin with their neighbours', and counts."""

from recmill.settings.optimizers import DenseOptimizer, Schedule
from recmill.settings.run import Cadence, Stop
from recmill.settings.sequence_models import SasRecConfig
from recmill.settings.sequences import SequenceConfig, SequenceData, SequenceLoss


def build() -> SequenceConfig:
    """SASRec, dimension 128, two blocks, the newest 50 events, cross entropy over sampled items with log-Q correction.

    Item vectors begin alike for items that co-occur in training events, and what followed the three newest
    events is added to the scores; `model.transition_weight` is better chosen on validation, more where items are many
    and events few. Evaluated every epoch by full ranking, ended when validation has not become better for a while.
    """
    return SequenceConfig(
        data=SequenceData(max_length=50, global_batch=128),
        model=SasRecConfig(
            embedding_dim=128,
            num_blocks=2,
            num_heads=2,
            dropout=0.3,
            init_std=0.02,
            item_init="co_occurrence",
            item_rounds=5,
            item_std=0.1,
            transition_weight=1.0,
            transition_events=3,
        ),
        loss=SequenceLoss(kind="sampled", num_sampled=4096),
        dense=DenseOptimizer(kind="adam", lr=0.001),
        schedule=Schedule(warmup_steps=200),
        cadence=Cadence(log_every_steps=100, evaluate_every_epochs=1.0, save_every_steps=500),
        stop=Stop(max_epochs=60, patience=3),
    )
