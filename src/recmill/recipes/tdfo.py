"""The published BERT4Rec on Goodreads, its defects fixed."""

from recmill.settings.optimizers import DenseOptimizer
from recmill.settings.protocol import Protocol
from recmill.settings.run import Cadence, Stop
from recmill.settings.sequence_models import Bert4RecConfig
from recmill.settings.sequences import Masking, SequenceConfig, SequenceData, SequenceLoss


def build() -> SequenceConfig:
    """tdfo's BERT4Rec: dimension 16, windows of 20 every 10 events, 20 % and the last hidden, 100 popular negatives.

    Norms before the sums, ReLU, an output layer of its own, label smoothing 0.1, Adam 3e-4 with weight decay, ten
    epochs. Prepare with `--preset goodreads --max-length 200`, and `--order item` to see what ordering by id did.
    Fixed: masks are new in every epoch, windows end at the newest event in training as in evaluation, the norm of the
    input is over an event's vector and not over the whole padded window, hidden and padded places are no candidates,
    and negatives are always 100.
    """
    return SequenceConfig(
        data=SequenceData(max_length=20, window_step=10, global_batch=32),
        mask=Masking(mask_prob=0.2, last=True),
        model=Bert4RecConfig(
            embedding_dim=16,
            num_blocks=2,
            num_heads=2,
            activation="relu",
            norm="pre",
            head=False,
            output="own",
            dropout=0.1,
            position_std=1.0,
            item_init="uniform",
            item_std=1.0,
        ),
        loss=SequenceLoss(label_smoothing=0.1),
        dense=DenseOptimizer(kind="adam", lr=3e-4, weight_decay=1e-4),
        cadence=Cadence(log_every_steps=100, evaluate_every_epochs=1.0),
        stop=Stop(max_epochs=10),
        protocol=Protocol(candidates="popularity", cutoffs=(10, 20, 50)),
    )
