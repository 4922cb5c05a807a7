"""`recmill plan`: rows, bytes and arithmetic of a run, before anything is allocated."""

import argparse
import json
from typing import TYPE_CHECKING

from recmill.cli.options import Verbs, add_recipe_options, add_set_option, sources_from
from recmill.cli.sizes import read_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recmill.api.plan import RunPlan
    from recmill.training.click.plan import ClickPlan
    from recmill.training.click.sharded_plan import ProcessPlan
    from recmill.training.click.tier_plan import TierPlan
    from recmill.training.sequence.plan import SequencePlan

GIB = 1 << 30


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("plan", help="say what a run will need, and whether it fits this machine")
    add_recipe_options(parser, "prepared rows or sequences it is to train on")
    parser.add_argument("--memory", metavar="SIZE", help="of the machine it is for, e.g. 64GiB (this one's)")
    parser.add_argument("--procs", type=int, metavar="N", help="spread over N processes of such a machine")
    parser.add_argument("--device-memory", metavar="SIZE", help="of each process, e.g. 16GiB (its share of --memory)")
    add_set_option(parser, "one setting, e.g. data.max_rows_per_table=1000000")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--items", type=int, metavar="N", help="size of the catalogue of a sequence model, without --data"
    )
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Work it out and tell; the exit status is 2 if it does not fit."""
    from recmill.api.plan import plan_config
    from recmill.recipes.resolve import resolve

    memory = read_size("--memory", args.memory) if args.memory else None
    device_memory = read_size("--device-memory", args.device_memory) if args.device_memory else None
    plan = plan_config(resolve(sources_from(args)), args.items, args.procs, memory, device_memory)
    if args.json:
        print(json.dumps(plan.as_dict()))
    else:
        show(plan)
    return 0 if plan.fits else 2


def show(plan: "RunPlan") -> None:
    """For a person, by family and number of processes."""
    from recmill.settings.clicks import TrainConfig

    if isinstance(plan.detail, tuple):
        show_processes(plan.detail, plan.memory_bytes)
    elif isinstance(plan.config, TrainConfig):
        show_clicks(plan.detail, plan.memory_bytes, plan.suggested_tiers)  # type: ignore[arg-type]
    else:
        show_sequences(plan, plan.detail)  # type: ignore[arg-type]


def show_processes(plans: "Sequence[ProcessPlan]", memory: int) -> None:
    """A line for every process, how evenly they share, and whether it fits."""
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


def show_clicks(plan: "ClickPlan", memory: int, suggested_tiers: str) -> None:
    """A table for a person, and whether it fits."""
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
    if plan.tiers is not None:
        show_tiers(plan.tiers)
    print(
        f"memory: {plan.total_bytes / GIB:.2f} GiB for one process, a batch taking {plan.batch_bytes / GIB:.3f} GiB; "
        f"{plan.copy_bytes / GIB:.2f} GiB more let training go on while a state is saved"
    )
    print(describe_fit(plan, memory, suggested_tiers))


def show_tiers(tiers: "TierPlan") -> None:
    """What a cache over a store takes."""
    share = tiers.num_slots / max(1, tiers.num_rows)
    print(
        f"cache: {tiers.num_slots:,} rows ({share:.1%}) in {tiers.cache_bytes / GIB:.3f} GiB, and "
        f"{tiers.index_bytes / GIB:.3f} GiB "
        + ("to know where each row is" if tiers.kind == "cached_ssd" else "for all")
    )
    if tiers.kind == "cached_ssd":
        print(
            f"disk: up to {tiers.disk_bytes() / GIB:.2f} GiB if every row is trained on, and each of "
            f"{tiers.num_kept} kept checkpoints may hold as much again"
        )


def describe_fit(plan: "ClickPlan", memory: int, suggested_tiers: str) -> str:
    """Whether it fits and, if not, by how much and what would help."""
    if plan.total_bytes <= memory:
        return f"fits: {memory / GIB:.2f} GiB are there"
    over = (
        f"does not fit: {(plan.total_bytes - memory) / GIB:.2f} GiB more than the {memory / GIB:.2f} GiB that are there"
    )
    if plan.tiers is not None:
        return f"{over}; {plan.tiers.lower_cache(plan.room_for_tables(memory))}"
    cap = plan.largest_cap(memory)
    if cap is None:
        return f"{over}; smaller tables do not help, lower data.global_batch or the layers"
    with_tiers = f"{suggested_tiers}, or with " if suggested_tiers else ""
    return f"{over}; it would with {with_tiers}--set data.max_rows_per_table={cap}"


def show_sequences(plan: "RunPlan", detail: "SequencePlan") -> None:
    """What takes the memory of a sequence model, and whether it fits."""
    config, num_items = plan.config, detail.num_items
    where = "rows of the embedding engine" if config.tables else "weights among others"
    print(
        f"item vectors: {num_items:,} of {config.model.embedding_dim}, {where}, "
        f"{detail.item_bytes / GIB:.3f} GiB in all"
    )
    print(f"layers: {detail.layer_bytes / GIB:.3f} GiB with gradients and optimizer")
    length = getattr(config.data, "max_length", 0)
    print(f"a step: {detail.batch_bytes / GIB:.3f} GiB for windows of {length}, at most")
    print(
        f"loss: {detail.loss_bytes / GIB:.3f} GiB of logits at a time (of all items at all places: "
        f"{detail.whole_logits_bytes / GIB:.2f} GiB)"
    )
    if detail.transition_bytes:
        print(f"transitions: {detail.transition_bytes / GIB:.3f} GiB of counts of pairs, at most")
    if detail.first_bytes:
        print(f"at the start: {detail.first_bytes / GIB:.3f} GiB to make first values and counts")
    print(f"evaluation: {detail.score_bytes / GIB:.3f} GiB of scores at a time")
    whose = "one process" if plan.procs == 1 else f"each of {plan.procs} processes"
    needed = f"memory: {plan.total_bytes / GIB:.2f} GiB for {whose}; {plan.memory_bytes / GIB:.2f} GiB are there"
    advice = "; lower data.global_batch or model.embedding_dim, or set loss.kind=sampled and tables.kind=adam"
    print(f"{needed}: {'fits' if plan.fits else f'does not fit{advice}'}")
