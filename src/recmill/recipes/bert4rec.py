"""BERT4Rec as its paper has it."""

from recmill.data.sequences import Masking
from recmill.models.bert4rec import Bert4RecConfig
from recmill.train.cadence import Cadence, Stop
from recmill.train.config import DenseOptimizer
from recmill.train.schedule import Schedule
from recmill.train.sequence_config import SequenceConfig, SequenceData


def build() -> SequenceConfig:
    """BERT4Rec, dimension 64, two blocks and heads, the newest 50 events, a fifth of them hidden, full softmax.

    GELU, norms behind the sums, item vectors shared by input and output. Masks are drawn afresh in every epoch, the
    newest event alone in a tenth of the windows, as at the moment of use. Needs more epochs than SASRec.
    """
    return SequenceConfig(
        data=SequenceData(max_length=50, window_step=25, global_batch=256),
        mask=Masking(frac=0.2, only_last_frac=0.1),
        model=Bert4RecConfig(embedding_dim=64, num_blocks=2, num_heads=2, dropout_frac=0.2, attention_dropout_frac=0.2),
        dense=DenseOptimizer(kind="adamw", lr=0.001, weight_decay=0.01),
        schedule=Schedule(warmup_steps=1000),
        cadence=Cadence(log_every_steps=100, evaluate_every_epochs=5.0, save_every_steps=500),
        stop=Stop(max_epochs=200, patience=5),
    )
