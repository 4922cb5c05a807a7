"""`recmill checkpoint`: look into saved states, compare them, and write them in other forms."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.cli.options import Verbs

if TYPE_CHECKING:
    from recmill.training.checkpoint.state_diff import StateDiff

MIB = 1 << 20
DIFFERENT, NOT_INTACT = 1, 2
PATH_HELP = "a checkpoint or model directory; of a run directory, the newest checkpoint"


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    actions = verbs.add_parser("checkpoint", help="look into what a run has saved").add_subparsers(
        title="actions", metavar="ACTION", required=True
    )
    parser = actions.add_parser("ls", help="list what a run has saved; names and sizes are checked, not checksums")
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="run directory")
    _add_json(parser, run_ls)
    parser = actions.add_parser("verify", help="compare all checksums; status 2 if something is not intact")
    parser.add_argument("path", type=Path, metavar="PATH", help="a checkpoint, a model or a run directory: all it has")
    _add_json(parser, run_verify)
    parser = actions.add_parser("show", help="settings, progress, tensors and tables of a saved state")
    _add_path(parser)
    _add_what(parser, "show only weights, or only what the optimizers keep")
    _add_json(parser, run_show)
    parser = actions.add_parser("diff", help="how two saved states differ; status 1 if they do")
    parser.add_argument("a", type=Path, metavar="A", help=PATH_HELP)
    parser.add_argument("b", type=Path, metavar="B", help="the other one")
    _add_what(parser, "compare only weights, or only what the optimizers keep; without it also progress and settings")
    _add_json(parser, run_diff)
    parser = actions.add_parser("reshard", help="the same state with its tables in other files")
    _add_path(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="checkpoint to write")
    parser.add_argument("--pieces", type=int, required=True, metavar="N", help="write the tables to N files")
    parser.set_defaults(run_verb=run_reshard)
    parser = actions.add_parser("extract", help="one table as .npy, and what its rows stand for")
    _add_path(parser)
    parser.add_argument("table", metavar="TABLE", help="its name; `recmill checkpoint show` lists them")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .npy file to write")
    _add_what(parser, "its weights (default), or what the optimizer keeps for it")
    parser.set_defaults(run_verb=run_extract)
    parser = actions.add_parser("export", help="the weights of a checkpoint alone, as a model directory")
    _add_path(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="model directory to write")
    parser.set_defaults(run_verb=run_export)


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)


def _add_what(parser: argparse.ArgumentParser, explanation: str) -> None:
    parser.add_argument("--what", choices=("weights", "state"), help=explanation)


def _add_json(parser: argparse.ArgumentParser, run_verb: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run_verb)


def run_ls(args: argparse.Namespace) -> int:
    """One line for everything that a run has saved."""
    from recmill.training.checkpoint.saved_state import list_run

    found = [each.as_dict() for each in list_run(args.run_dir)]
    if args.json:
        print(json.dumps({"saved": found}))
        return 0
    rows = list[list[str]]()
    for each in found:
        best = f"{each['best']['score']:.5f} after {each['best']['step']:,}" if each["best"] else "–"
        numbers = (each[key] for key in ("step", "bytes", "rows", "epoch", "processes"))
        cells = ["–" if number is None else f"{number:,}" for number in numbers]
        cells[1] = "–" if each["bytes"] is None else f"{each['bytes'] / MIB:,.1f}"
        name = str(Path(each["path"]).relative_to(args.run_dir))
        rows.append([name, *cells, best, "intact" if each["intact"] else "torn"])
    numbers_in = {"step": True, "MiB": True, "rows": True, "epoch": True, "processes": True}
    print_table({"saved": False, **numbers_in, "best so far": False, "state": False}, rows)
    for each in found:
        if each["damage"]:
            print(f"torn: {each['damage']}")
    if not found:
        print(f"{args.run_dir} has saved nothing yet")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Name every file that is not what was written."""
    from recmill.training.checkpoint.saved_state import verify

    found = verify(args.path)
    is_intact = not any(found.values())
    if args.json:
        print(json.dumps({"intact": is_intact, "damage": {str(path): damage for path, damage in found.items()}}))
    else:
        for path, damage in found.items():
            print(f"{path}: {'not ' if damage else ''}intact")
            for complaint in damage:
                print(f"  {complaint}")
    return 0 if is_intact else NOT_INTACT


def run_show(args: argparse.Namespace) -> int:
    """Print what is in a saved state."""
    from recmill.training.checkpoint.saved_state import describe, open_state

    state = open_state(args.path)
    facts = describe(state, (args.what,) if args.what else state.whats)
    if args.json:
        print(json.dumps(facts))
        return 0
    print(f"{facts['path']}: {facts['kind']} after step {facts['step']:,}, {facts['bytes'] / MIB:,.1f} MiB")
    for title in ("progress", "counters", "settings"):
        told = ", ".join(f"{key} {_shown(value)}" for key, value in (facts[title] or {}).items())
        if told:
            print(f"{title}: {told}")
    for title in ("tensors", "tables"):
        rows = list[list[str]]()
        for each in facts[title]:
            shape = " × ".join(f"{length:,}" for length in each["shape"]) or "1"
            pieces = [_told_piece(piece, each["shape"]) for piece in each.get("pieces", ())]
            rows.append([each["name"], each["what"], shape, each["dtype"], f"{each['norm']:.6g}", ", ".join(pieces)])
        if rows:
            last = "lies in" if title == "tables" else ""
            print_table({title: False, "what": False, "shape": True, "dtype": False, "norm": True, last: False}, rows)
    return 0


def _told_piece(piece: dict[str, Any], shape: list[int]) -> str:
    """Its file, and which part of the table it is."""
    is_whole = [piece["rows"], piece["columns"]] == [[0, shape[0]], [0, shape[1]]]
    part = "" if is_whole else "[{}:{},{}:{}]".format(*piece["rows"], *piece["columns"])
    return str(piece["file"]).removesuffix(".safetensors") + part


def run_diff(args: argparse.Namespace) -> int:
    """Tell what differs."""
    from recmill.training.checkpoint.saved_state import open_state
    from recmill.training.checkpoint.state_diff import compare

    a, b = open_state(args.a), open_state(args.b)
    diff = compare(a, b, args.what)
    if args.json:
        print(json.dumps({"a": str(a.directory), "b": str(b.directory), **diff.as_dict()}))
    else:
        print(f"A: {a.directory}\nB: {b.directory}")
        _show_diff(diff)
    return 0 if diff.is_empty else DIFFERENT


def _show_diff(diff: "StateDiff") -> None:
    if diff.tensors:
        rows = list[list[str]]()
        for each in diff.tensors:
            shapes = "" if each.shapes[0] == each.shapes[1] else f"{each.shapes[0]} in A, {each.shapes[1]} in B"
            sizes = (f"{each.num_differing:,}", f"{each.num_values:,}")
            rows.append([each.name, *sizes, f"{each.max_absolute:.3g}", f"{each.max_relative:.3g}", shapes])
        numbers_in = {"differing": True, "of": True, "largest": True, "relative": True}
        print_table({"tensor": False, **numbers_in, "": False}, rows)
    for side, names in (("A", diff.only_in_a), ("B", diff.only_in_b)):
        for name in names:
            print(f"only in {side}: {name}")
    for key, (ours, theirs) in diff.values.items():
        print(f"{key}: {_shown(ours)} in A, {_shown(theirs)} in B")
    same = diff.num_tensors - len(diff.tensors)
    others = ", and nothing else differs" if diff.is_empty else ""
    print(f"{same:,} of {diff.num_tensors:,} tensors that both have are the same bytes{others}")


def run_reshard(args: argparse.Namespace) -> int:
    """Write the state anew."""
    from recmill.training.checkpoint.reshard import reshard
    from recmill.training.checkpoint.saved_state import open_state

    state = open_state(args.path)
    reshard(state, args.out, args.pieces)
    print(f"{args.out}: {state.directory} (step {state.step:,}), {_files(state.num_pieces)} before, {args.pieces} now")
    return 0


def run_extract(args: argparse.Namespace) -> int:
    """Write a table, and say what its ids are."""
    from recmill.training.checkpoint.extract import extract
    from recmill.training.checkpoint.saved_state import open_state

    state = open_state(args.path)
    extracted = extract(state, args.table, args.out, args.what or "weights")
    rows, columns = extracted.shape
    print(f"{args.out}: {rows:,} rows of {columns} numbers, table {args.table} of {state.directory}")
    print(f"row i is id i; {extracted.note}")
    return 0


def run_export(args: argparse.Namespace) -> int:
    """Write the weights alone."""
    from recmill.serve.weights import run_of
    from recmill.training.checkpoint.reshard import export
    from recmill.training.checkpoint.saved_state import open_state

    state = open_state(args.path)
    export(state, args.out)
    print(f"{args.out}: the weights of {state.directory} (step {state.step:,}) and their settings")
    if (run_dir := run_of(state.directory)) is not None:
        print(f"next: recmill evaluate {run_dir} --weights {args.out}")
    return 0


def _files(num_pieces: int) -> str:
    return f"tables in {num_pieces} {'file' if num_pieces == 1 else 'files'}"


def _shown(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def print_table(headings: Mapping[str, bool], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns, those of numbers to the right; no name is folded, so that it can be found and copied."""
    lines = [list(headings), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    for line in lines:
        cells = zip(line, widths, headings.values(), strict=True)
        padded = (cell.rjust(width) if is_number else cell.ljust(width) for cell, width, is_number in cells)
        print("  ".join(padded).rstrip())
