"""BERT4Rec of its paper's size, with item vectors that begin with their neighbours' and limits counted in steps."""

from recmill.data.sequences import Masking
from recmill.models.bert4rec import Bert4RecConfig
from recmill.train.cadence import Cadence, Stop
from recmill.train.config import DenseOptimizer
from recmill.train.schedule import Schedule
from recmill.train.sequence_config import SequenceConfig, SequenceData


def build() -> SequenceConfig:
    """BERT4Rec, dimension 64, two blocks and heads, the newest 200 events, a fifth of them hidden, full softmax.

    GELU, norms behind the sums, item vectors shared by input and output. Masks are drawn afresh in every epoch, the
    newest event alone in a tenth of the windows, as at the moment of use. What makes this model good is how many steps
    it takes: batches are small, the warm-up is short, and evaluations, patience and the end are counted in steps, which
    mean the same for a thousand users and for a million. Rates fall from half of `stop.max_steps` on. Windows of 200
    are what published figures of MovieLens-1M have; on ML-100k those of 50 were as good. Item vectors that begin with
    their neighbours' learn faster, most of all where items are many and events few.
    """
    return SequenceConfig(
        data=SequenceData(max_length=200, window_step=100, global_batch=64),
        mask=Masking(frac=0.2, only_last_frac=0.1),
        model=Bert4RecConfig(
            embedding_dim=64,
            num_blocks=2,
            num_heads=2,
            dropout_frac=0.2,
            attention_dropout_frac=0.2,
            item_init="neighbours",
            item_rounds=5,
            item_std=0.1,
        ),
        dense=DenseOptimizer(kind="adamw", lr=0.001, weight_decay=0.01),
        schedule=Schedule(warmup_steps=100, decay_start_step=20_000, decay_steps=20_000, decay_power=1.0),
        cadence=Cadence(log_every_steps=100, evaluate_every_steps=500, save_every_steps=500),
        stop=Stop(max_epochs=0, max_steps=40_000, patience=8),
    )
