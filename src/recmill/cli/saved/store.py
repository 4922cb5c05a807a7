"""`recmill store`: look at the rows that a saved state has in files, check them, and write them in other forms."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.cli.options import Verbs
from recmill.cli.saved.checkpoint import MIB, NOT_INTACT, PATH_HELP, print_table

if TYPE_CHECKING:
    from recmill.training.checkpoint.stored.row_export import ExportedRows


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    actions = verbs.add_parser("store", help="rows of tables in tiers, as a run has saved them").add_subparsers(
        title="actions", metavar="ACTION", required=True
    )
    _add_action(actions, "info", "tables, records, segments and bytes", run_info)
    _add_action(actions, "verify", "compare all checksums, to the block; status 2 if something is damaged", run_verify)
    parser = _add_action(actions, "compact", "write it anew without records that do not count", run_compact)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write this directory, and leave PATH as it is")
    parser = _add_action(actions, "export", "the rows that exist in files, as Parquet", run_export)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .parquet file to write")
    parser.add_argument("--table", metavar="TABLE", help="of this table alone")
    parser = _add_action(actions, "import", "the state with rows of a file in place of its own", run_import)
    parser.add_argument("--rows", type=Path, required=True, metavar="FILE", help="what export or delta has written")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write")
    parser = _add_action(actions, "delta", "the rows that changed after a step, as Parquet", run_delta)
    parser.add_argument("--since", type=int, required=True, metavar="STEP", help="rows that changed after this step")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .parquet file to write")


def _add_action(actions: Any, name: str, explanation: str, run_verb: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=explanation)
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run_verb)
    return parser


def _print_json(facts: dict[str, Any]) -> None:
    print(json.dumps({key: str(value) if isinstance(value, Path) else value for key, value in facts.items()}))


def run_info(args: argparse.Namespace) -> int:
    """Print what there is."""
    from recmill.training.checkpoint.stored.describe import describe_store

    facts = describe_store(args.path)
    if args.json:
        _print_json(facts)
        return 0
    print(f"{facts['path']}: {facts['kind']} after step {facts['step']:,}")
    kept = f"{facts['optimizer']} with {facts['state_width']} numbers a row"
    print(f"dimension {facts['dim']}, {kept}, seed {facts['seed']}")
    print(
        f"{facts['records']:,} records in {len(facts['segments']):,} segments, {facts['bytes'] / MIB:,.2f} MiB; "
        f"{facts['live_records']:,} of them count ({facts['live_frac']:.1%})"
    )
    tables = [[each["name"], f"{each['rows']:,}", f"{each['stored_rows']:,}"] for each in facts["tables"]]
    print_table({"table": False, "rows": True, "in files": True}, tables)
    segments = [
        [each["file"], f"{each['records']:,}", f"{each['live_frac']:.1%}", f"{each['bytes'] / MIB:,.2f}"]
        for each in facts["segments"]
    ]
    print_table({"segment": False, "records": True, "that count": True, "MiB": True}, segments)
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Name every file that is not what was written, and where."""
    from recmill.training.checkpoint.stored.damage import verify_store

    found = verify_store(args.path)
    if args.json:
        _print_json(found)
    else:
        looked_at = f"{found['segments']:,} segments, {found['blocks']:,} blocks, {found['records']:,} records"
        print(f"{found['path']}: {'' if found['intact'] else 'not '}intact ({looked_at})")
        for complaint in found["damage"]:
            print(f"  {complaint}")
    return 0 if found["intact"] else NOT_INTACT


def run_compact(args: argparse.Namespace) -> int:
    """Write the state anew."""
    from recmill.training.checkpoint.stored.compact import compact_store

    done = compact_store(args.path, args.out)
    if args.json:
        _print_json(asdict(done))
        return 0
    print(
        f"{done.directory}: {done.bytes_before / MIB:,.2f} MiB of rows before, {done.bytes_after / MIB:,.2f} MiB now "
        f"({done.records_before:,} records, {done.records_after:,} of which count)"
    )
    return 0


def run_export(args: argparse.Namespace) -> int:
    """Write rows."""
    from recmill.training.checkpoint.stored.row_export import export_rows

    done = export_rows(args.path, args.out, args.table)
    return _tell_export(args, done, "rows that exist in files" + (f", table {args.table}" if args.table else ""))


def run_delta(args: argparse.Namespace) -> int:
    """Write rows that changed."""
    from recmill.training.checkpoint.stored.row_export import export_delta

    done = export_delta(args.path, args.since, args.out)
    return _tell_export(args, done, f"rows that changed after step {args.since:,}")


def _tell_export(args: argparse.Namespace, done: "ExportedRows", which: str) -> int:
    if args.json:
        _print_json(asdict(done))
        return 0
    print(f"{done.path}: {done.num_rows:,} {which}, of {done.source} (step {done.to_step:,})")
    if done.note:
        print(f"column value is empty: {done.note}")
    return 0


def run_import(args: argparse.Namespace) -> int:
    """Write a state."""
    from recmill.training.checkpoint.stored.row_import import import_rows

    done = import_rows(args.path, args.rows, args.out)
    if args.json:
        _print_json(asdict(done))
        return 0
    of_step = "" if done.to_step is None else f", as they were after step {done.to_step:,}"
    print(f"{done.directory}: {done.source} with {done.num_rows:,} rows of {args.rows}{of_step}")
    print(
        f"layers, their optimizer, counters and progress are those of {done.source} (step {done.step:,}); the file has "
        "none"
    )
    return 0
