"""`recmill plan`: rows, bytes and arithmetic of a run, before anything is allocated."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.cli import sequences
from recmill.cli.prepare import memory_bytes
from recmill.cli.train import Verbs, add_set_option, resolved_config
from recmill.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recmill.settings.clicks import TrainConfig
    from recmill.training.click.plan import Plan
    from recmill.training.click.sharded_plan import ProcessPlan

GIB = 1 << 30


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("plan", help="say what a run will need, and whether it fits this machine")
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="named settings; `recmill recipes` lists them")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML, laid over the recipe's")
    parser.add_argument("--schema", metavar="NAME|FILE", help="columns of the rows: criteo, kaggle or a .toml file")
    parser.add_argument("--memory", metavar="SIZE", help="of the machine it is for, e.g. 64GiB (this one's)")
    parser.add_argument("--procs", type=int, metavar="N", help="spread over N processes of such a machine")
    parser.add_argument("--device-memory", metavar="SIZE", help="of each process, e.g. 16GiB (its share of --memory)")
    add_set_option(parser, "one setting, e.g. data.max_rows_per_table=1000000")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--data", type=Path, metavar="DIR", help="prepared rows or sequences it is to train on")
    parser.add_argument(
        "--items", type=int, metavar="N", help="size of the catalogue of a sequence model, without --data"
    )
    parser.set_defaults(run_verb=run, bad_rows=None, vocabulary=None)


def run(args: argparse.Namespace) -> int:
    """Work it out and tell; the exit status is 2 if it does not fit."""
    import psutil

    from recmill.training.click.plan import make_plan

    memory = memory_bytes(args.memory) if args.memory else psutil.virtual_memory().total
    if sequences.is_wanted(args):
        return run_sequences(args, memory)
    if args.items is not None:
        raise ConfigError(f"--items {args.items} is for sequence models; leave it out")
    config = resolved_config(args)
    if args.procs is not None or args.device_memory is not None:
        return run_sharded(args, config, memory)
    plan = make_plan(config)
    if args.json:
        print(json.dumps(as_dict(plan, memory)))
    else:
        show(plan, memory)
    return 0 if plan.total_bytes <= memory else 2


def run_sharded(args: argparse.Namespace, config: "TrainConfig", memory: int) -> int:
    """The same for each of several processes."""
    from recmill.training.click.sharded_plan import plan_processes

    device_memory = process_memory(args, memory)
    plans = plan_processes(config, args.procs, device_memory)
    fits = all(plan.total_bytes <= device_memory for plan in plans)
    if args.json:
        ranks = [{**plan.as_dict(), "fits": plan.total_bytes <= device_memory} for plan in plans]
        print(json.dumps({"processes": ranks, "device_memory_bytes": device_memory, "fits": fits}))
    else:
        show_processes(plans, device_memory)
    return 0 if fits else 2


def process_memory(args: argparse.Namespace, memory: int) -> int:
    """What there is for each of the processes."""
    if args.procs is None and args.device_memory is None:
        return memory
    if args.procs is None or args.procs < 1:
        raise ConfigError(f"--procs is {args.procs}: tables are spread over at least one process; give --procs N")
    return memory_bytes(args.device_memory) if args.device_memory else memory // int(args.procs)


def show_processes(plans: "Sequence[ProcessPlan]", memory: int) -> None:
    """A line for every process, how evenly they share, and the verdict."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    headings = ("process", "tables", "tables GiB", "all GiB", "saving GiB", "received MiB/step")
    for heading in headings:
        table.add_column(heading, justify="right")
    for plan in plans:
        sizes = (f"{size / GIB:.3f}" for size in (plan.table_bytes, plan.total_bytes, plan.copy_bytes))
        table.add_row(str(plan.rank), str(len(plan.holdings)), *sizes, f"{plan.traffic_bytes / 2**20:.2f}")
    Console().print(table)
    for plan in plans:
        print(f"process {plan.rank}: {', '.join(plan.holdings) or 'no table'}")
    loads = [plan.table_bytes for plan in plans]
    print("saving: room for a copy of the state, which is written while training goes on; without it training waits")
    print(f"balance: the largest share of the tables is {max(loads) * len(loads) / max(1, sum(loads)):.2f} x the mean")
    over = max(plan.total_bytes for plan in plans) - memory
    if over <= 0:
        print(f"fits: {memory / GIB:.2f} GiB are there for each process")
    else:
        print(
            f"does not fit: {over / GIB:.2f} GiB more than the {memory / GIB:.2f} GiB of a process; use more "
            "processes, lower data.max_rows_per_table or data.global_batch, or set sharding.kind=row_wise"
        )


def as_dict(plan: "Plan", memory: int) -> dict[str, Any]:
    """Plain numbers for JSON."""
    return {
        "tables": [
            {"name": t.name, "rows": t.num_rows, "dim": t.dim, "weight_bytes": t.weight_bytes, "bytes": t.total_bytes}
            for t in plan.tables
        ],
        "rows": plan.num_rows,
        "weight_bytes": plan.weight_bytes,
        "table_bytes": sum(table.total_bytes for table in plan.tables),
        "dense_parameters": plan.dense_parameters,
        "dense_bytes": plan.dense_bytes,
        "batch_bytes": plan.batch_bytes,
        "flops_per_row": plan.flops_per_row,
        "total_bytes": plan.total_bytes,
        "copy_bytes": plan.copy_bytes,
        "memory_bytes": memory,
        "fits": plan.total_bytes <= memory,
        "max_rows_per_table": plan.largest_cap(memory),
    }


def show(plan: "Plan", memory: int) -> None:
    """A table for a person, and the verdict."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("table")
    for heading in ("rows", "dimension", "weights GiB", "with optimizer GiB"):
        table.add_column(heading, justify="right")
    for each in plan.tables:
        sizes = (f"{size / GIB:.3f}" for size in (each.weight_bytes, each.total_bytes))
        table.add_row(each.name, f"{each.num_rows:,}", str(each.dim), *sizes)
    table_bytes = sum(each.total_bytes for each in plan.tables)
    table.add_section()
    table.add_row("all", f"{plan.num_rows:,}", "", f"{plan.weight_bytes / GIB:.2f}", f"{table_bytes / GIB:.2f}")
    Console().print(table)
    print(
        f"layers: {plan.dense_parameters:,} parameters, {plan.dense_bytes / GIB:.3f} GiB with gradients and optimizer"
    )
    print(f"arithmetic: {plan.flops_per_row:,} floating-point operations per row forward, about three times to train")
    print(
        f"memory: {plan.total_bytes / GIB:.2f} GiB for one process, a batch taking {plan.batch_bytes / GIB:.3f} GiB; "
        f"{plan.copy_bytes / GIB:.2f} GiB more let training go on while a state is saved"
    )
    print(verdict(plan, memory))


def verdict(plan: "Plan", memory: int) -> str:
    """Whether it fits and, if not, by how much and what would help."""
    if plan.total_bytes <= memory:
        return f"fits: {memory / GIB:.2f} GiB are there"
    over = (
        f"does not fit: {(plan.total_bytes - memory) / GIB:.2f} GiB more than the {memory / GIB:.2f} GiB that are there"
    )
    cap = plan.largest_cap(memory)
    if cap is None:
        return f"{over}; smaller tables do not help, lower data.global_batch or the layers"
    return f"{over}; it would with --set data.max_rows_per_table={cap}"


def run_sequences(args: argparse.Namespace, memory: int) -> int:
    """The same for a sequence model, whose size depends on the catalogue."""
    from dataclasses import asdict

    from recmill.data.events.prepare import open_prepared_sequences
    from recmill.training.sequence.plan import make_sequence_plan
    from recmill.training.sequence.sharding import spread_kind

    config = sequences.resolved_config(args)
    num_procs = 1 if args.procs is None else args.procs
    memory = process_memory(args, memory)
    if (args.items is None) == (not config.data.dir):
        raise ConfigError("a sequence model is as large as its catalogue: give --data DIR or --items N, one of them")
    if args.items is not None and args.items < 1:
        raise ConfigError(f"--items {args.items}: a catalogue has at least one item")
    num_items, num_trained = args.items, None
    if num_items is None:
        prepared = open_prepared_sequences(Path(config.data.dir)).sequences
        num_items, num_trained = prepared.num_items, int(prepared.train_lengths.sum())
    spread_kind(config, num_procs)  # refuses what a run would refuse
    plan = make_sequence_plan(config, num_items, num_procs, num_trained)
    fits = plan.total_bytes <= memory
    if args.json:
        told = {**asdict(plan), "total_bytes": plan.total_bytes, "memory_bytes": memory, "fits": fits}
        print(json.dumps(told))
        return 0 if fits else 2
    where = "rows of the embedding engine" if config.tables else "weights among others"
    print(
        f"item vectors: {num_items:,} of {config.model.embedding_dim}, {where}, {plan.item_bytes / GIB:.3f} GiB in all"
    )
    print(f"layers: {plan.layer_bytes / GIB:.3f} GiB with gradients and optimizer")
    print(f"a step: {plan.batch_bytes / GIB:.3f} GiB for windows of {config.data.max_length}, at most")
    print(
        f"loss: {plan.loss_bytes / GIB:.3f} GiB of logits at a time (of all items at all places: "
        f"{plan.whole_logits_bytes / GIB:.2f} GiB)"
    )
    if plan.transition_bytes:
        print(f"transitions: {plan.transition_bytes / GIB:.3f} GiB of counts of pairs, at most")
    if plan.first_bytes:
        print(f"at the start: {plan.first_bytes / GIB:.3f} GiB to make first values and counts")
    print(f"evaluation: {plan.score_bytes / GIB:.3f} GiB of scores at a time")
    whose = "one process" if num_procs == 1 else f"each of {num_procs} processes"
    verdict_of = f"memory: {plan.total_bytes / GIB:.2f} GiB for {whose}; {memory / GIB:.2f} GiB are there"
    advice = (
        ""
        if fits
        else "; lower data.global_batch or model.embedding_dim, or set loss.kind=sampled and tables.kind=adam"
    )
    print(f"{verdict_of}: {'fits' if fits else 'does not fit'}{advice}")
    return 0 if fits else 2
