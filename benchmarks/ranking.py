"""Seconds of ranking all items for many users: a SASRec with first values, scored, ranked and listed block by block.

The same as an evaluation in a run does: histories encoded, all items scored, seen ones removed, ranks counted, the
lists for coverage taken. The rival encodes histories with the same model and then scores them in plain torch, with
`topk` over users × items blocks, and no rank below its list.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.made_up import count_items, make_up
from benchmarks.report import Report, add_common_options, median_ratio, take_turns
from recmill.data.events.windows import Sequences, heldout_users, read_histories
from recmill.ranking import RankEvaluator
from recmill.settings.protocol import Protocol
from recmill.settings.sequence_models import SasRecConfig
from recmill.settings.sequences import SequenceConfig
from recmill.training.sequence.evaluate import cut_blocks, rank_users
from recmill.training.sequence.step import SequenceState, build_sequence_state
from recmill.training.threads import use_threads


def time_recmill(parts: SequenceState, sequences: Sequences, protocol: Protocol) -> float:
    """Seconds of an evaluation."""
    began = time.perf_counter()
    blocks = cut_blocks(heldout_users(sequences, "test"), sequences.num_items, parts.config.data.eval_batch)
    rank_users(parts.model, sequences, "test", RankEvaluator(protocol, count_items(sequences)), blocks)
    return time.perf_counter() - began


def time_plain(parts: SequenceState, sequences: Sequences, length: int) -> float:
    """Seconds of scoring the same histories and taking lists, without more."""
    began = time.perf_counter()
    users = heldout_users(sequences, "test")
    with torch.inference_mode():
        weights = parts.model.output_weights()
        for start in range(0, len(users), parts.config.data.eval_batch):
            some = read_histories(sequences, "test", users[start : start + parts.config.data.eval_batch])
            scores = parts.model.encode(some.ids, some.lengths) @ weights.T
            rows = np.repeat(np.arange(len(some.lengths)), some.lengths)
            scores[torch.from_numpy(rows), torch.from_numpy(some.ids - 1)] = -torch.inf
            scores.topk(length, dim=1)
    return time.perf_counter() - began


def main(argv: Sequence[str]) -> int:
    """`recmill bench ranking`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench ranking", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=3)
    parser.add_argument("--users", type=int, default=40_226)
    parser.add_argument("--items", type=int, default=54_542)
    parser.add_argument("--dim", type=int, default=64)
    args = parser.parse_args(argv)
    use_threads(None)
    sequences, protocol = make_up(args.users, args.items), Protocol()
    config = SequenceConfig(model=SasRecConfig(embedding_dim=args.dim))
    parts = build_sequence_state(config, count_items(sequences))
    parts.model.eval()
    rank_users(
        parts.model, sequences, "test", RankEvaluator(protocol, count_items(sequences)), [np.arange(2)]
    )  # compiles
    contenders = {
        "recmill": lambda: time_recmill(parts, sequences, protocol),
        "plain": lambda: time_plain(parts, sequences, max(protocol.cutoffs)),
    }
    timings = take_turns(contenders, rounds=args.rounds)
    report = Report("ranking")
    for name, timing in timings.items():
        report.figures[f"{name} s"] = timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    report.ratios["recmill/plain"] = median_ratio(timings, "recmill", "plain")
    report.notes = {"users": args.users, "items": args.items, "dim": args.dim, "rounds": args.rounds}
    report.show(as_json=args.json)
    return 0
