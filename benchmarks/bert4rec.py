"""Windows per second of training BERT4Rec on this CPU, three ways that take turns on the same windows and masks:

recmill    packed windows, the loss over hidden events only, no logits kept
plain      plain PyTorch: windows padded to the largest length, logits of all items at all places
gathered   plain PyTorch: padded to the batch's longest window, logits of all items where something is hidden

Same shapes, dropout, optimizer (Adam in one pass) and catalogue. Windows are those of a prepared directory (--data) or
made up: lengths as in Beauty, about seven events to learn from, and a catalogue of its size. With --full windows
are all as long as the model sees, which leaves packing nothing to save.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.made_up import count_items, make_up
from benchmarks.plain_bert4rec import PlainBert4Rec, gathered_loss, plain_loss, take_step
from benchmarks.report import Report, add_common_options, median_ratio, take_turns
from recmill.data.events.prepare import open_prepared_sequences
from recmill.data.events.windows import SequenceBatch, Sequences, WindowOrder, WindowStream
from recmill.settings.sequence_models import Bert4RecConfig
from recmill.settings.sequences import Masking, SequenceConfig, SequenceData
from recmill.training.sequence.step import build_sequence_state, take_sequence_step
from recmill.training.threads import use_threads

WARM_STEPS = 1
LossOf = Callable[[PlainBert4Rec, torch.Tensor, torch.Tensor], torch.Tensor]


def padded(batch: SequenceBatch, values: NDArray[np.int64], max_length: int) -> torch.Tensor:
    """(B, L), filled up in front."""
    out = np.zeros((batch.num_rows, max_length), np.int64)
    starts = np.cumsum(batch.lengths) - batch.lengths
    for row, (start, length) in enumerate(zip(starts, batch.lengths, strict=True)):
        out[row, max_length - length :] = values[start : start + length]
    return torch.from_numpy(out)


def timed(step: Callable[[int], object], num_steps: int) -> float:
    """Seconds of so many steps, after some that do not count."""
    for i in range(WARM_STEPS):
        step(i)
    began = time.perf_counter()
    for i in range(num_steps):
        step(i)
    return time.perf_counter() - began


def measure(sequences: Sequences, config: SequenceConfig, *, rounds: int, num_steps: int) -> Report:
    """All three, turn by turn."""
    data = config.data
    order = WindowOrder("masked", data.max_length, 0, data.global_batch, config.seed, None)
    batches = list(itertools.islice(WindowStream(sequences, order, config.masking), 8))
    parts = build_sequence_state(config, count_items(sequences))
    settings = config.model
    assert isinstance(settings, Bert4RecConfig)
    ours = itertools.cycle(batches)
    pairs = [(padded(b, b.ids, data.max_length), padded(b, b.targets, data.max_length)) for b in batches]

    def rival(loss_of: LossOf) -> Callable[[], float]:
        model = PlainBert4Rec(settings, sequences.num_items, data.max_length)
        optimizer = torch.optim.Adam(model.parameters(), lr=config.dense.lr, fused=True)
        theirs = itertools.cycle(pairs)
        return lambda: timed(lambda _: take_step(optimizer, loss_of(model, *next(theirs))), num_steps)

    contenders = {
        "recmill": lambda: timed(lambda i: take_sequence_step(parts, next(ours), i), num_steps),
        "plain": rival(plain_loss),
        "gathered": rival(gathered_loss),
    }
    timings = take_turns(contenders, rounds=rounds)
    report = Report("bert4rec")
    for name, timing in timings.items():
        report.figures[f"{name} windows/s"] = num_steps * data.global_batch / timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    report.ratios = {f"recmill/{name}": median_ratio(timings, "recmill", name) for name in ("plain", "gathered")}
    mean_length = float(np.mean([batch.lengths.mean() for batch in batches]))
    report.notes = {
        "items": sequences.num_items,
        "batch": data.global_batch,
        "max length": data.max_length,
        "mean length": round(mean_length, 1),
        "dim": settings.embedding_dim,
        "blocks": settings.num_blocks,
        "mask": config.masking.mask_prob,
        "steps": num_steps,
        "rounds": rounds,
    }
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench bert4rec`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench bert4rec", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=5)
    parser.add_argument("--data", type=Path, metavar="DIR", help="prepared sequences (made up without it)")
    parser.add_argument("--items", type=int, default=54_542, help="catalogue of made-up sequences (54,542)")
    parser.add_argument("--batch", type=int, default=64, help="windows of a step (64)")
    parser.add_argument("--max-length", type=int, default=50, help="events that the model sees (50)")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--mask", type=float, default=0.2, help="share of events that are hidden (0.2)")
    parser.add_argument("--full", action="store_true", help="made-up windows are all of the largest length")
    parser.add_argument("--steps", type=int, default=4, help="of a turn (4)")
    args = parser.parse_args(argv)
    use_threads(None)
    if args.data is not None:
        sequences = open_prepared_sequences(args.data).sequences
    else:
        sequences = make_up(8 * args.batch, args.items, full_length=args.max_length + 2 if args.full else None)
    config = SequenceConfig(
        data=SequenceData(max_length=args.max_length, global_batch=args.batch),
        model=Bert4RecConfig(embedding_dim=args.dim),
        mask=Masking(frac=args.mask),
    )
    measure(sequences, config, rounds=args.rounds, num_steps=args.steps).show(as_json=args.json)
    return 0
