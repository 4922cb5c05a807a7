"""Reads the command line, runs the verb, and turns errors into two lines and an exit status."""

import argparse
import errno
import io
import json
import os
import sys
import warnings
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import NoReturn

from recmill.cli import (
    audit,
    bench,
    calibrate,
    demo,
    doctor,
    evaluate,
    launch,
    plan,
    predict,
    prepare,
    recipes,
    recommend,
    schema,
    synth,
    train,
)
from recmill.cli.address_space import refuse_little_address_space
from recmill.cli.files import sort, split
from recmill.cli.saved import checkpoint, store
from recmill.errors import ERROR_FILE, INTERRUPTED, PeerFailed, RecmillError, UserError

# How often a thread that waits for another looks before it sleeps: for some tens of microseconds, the gaps within a
# step. The library's own choice is milliseconds, in which work of others on the same cores stands still and is then
# waited for: beside one busy process a step took ten times as long.
SPIN_COUNT = "20000"
_SHOWN = 200  # characters of a path in a message
# of the loader of libraries, of the system, of torch, and of threads
_STARVED = ("failed to map segment", "annot allocate memory", "can't allocate memory", "can't start new thread")


def calm_threads(environment: MutableMapping[str, str]) -> None:
    """Let threads of torch and our kernels give way soon, unless somebody has decided that; before they are loaded."""
    if not environment.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT


def quiet_torch(environment: MutableMapping[str, str]) -> None:
    """Leave it to our messages to say that a connection is lost: torch prints its own stack for each attempt."""
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")


def build_parser() -> argparse.ArgumentParser:
    """All verbs and their options."""
    parser = argparse.ArgumentParser(
        prog="recmill", description="Trains recommendation models from raw logs, and says how good they are."
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in (
        *(demo, synth, split, sort, schema, audit, prepare, recipes, plan),
        *(train, launch, evaluate, calibrate, predict, recommend, checkpoint, store, bench, doctor),
    ):
        verb.add_parser(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 2 for a user's mistake, 1 for a failure."""
    calm_threads(os.environ)
    quiet_torch(os.environ)
    words = sys.argv[1:] if argv is None else list(argv)
    args = build_parser().parse_args(words, argparse.Namespace(words=words))
    try:
        refuse_little_address_space(next((word for word in words if not word.startswith("-")), ""))
        return int(args.run_verb(args))
    except PeerFailed as error:
        return error.exit_status
    except RecmillError as error:
        if args.debug:
            raise
        leave_error(error)
        print(f"recmill: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("recmill: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # or the interpreter complains once more when it flushes
        return 1
    except (MemoryError, OSError) as error:
        if args.debug:
            raise
        print(f"recmill: {explain_system(error)}", file=sys.stderr)
        return UserError.exit_status
    except Exception as error:
        if args.debug:
            raise
        if is_starved(error):
            print(f"recmill: {explain_system(MemoryError())}", file=sys.stderr)
            return UserError.exit_status
        print(f"recmill: {type(error).__name__}: {error}", file=sys.stderr)
        print(
            "recmill: internal error, please report it with the output of `recmill --debug` and the same words",
            file=sys.stderr,
        )
        return 1


def explain_system(error: MemoryError | OSError) -> str:
    """What the system did not give, and what to do about it."""
    if isinstance(error, OSError):
        place, why = str(error.filename or "standard output, or a file"), error.strerror or error
        place = place if len(place) <= _SHOWN else f"{place[:_SHOWN]}…"
        if isinstance(error, PermissionError):
            return f"{place} cannot be read or written: {why}; choose another place"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{place} cannot be written: {why}; make room there and run the same command again"
        return (
            f"{place} cannot be read or written: {why}; look at the disk and the path, and run the same command again"
        )
    return (
        f"out of memory ({error or 'the system gave no more'}); `recmill plan` shows what a run needs: lower "
        "data.max_rows_per_table, data.global_batch or data.eval_batch"
    )


def is_starved(error: BaseException | None) -> bool:
    """Whether an error comes of a lack of memory, which libraries tell in words of their own."""
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error) for words in _STARVED):
            return True
        error = error.__cause__ or error.__context__
    return False


def leave_error(error: RecmillError) -> None:
    """Write down what ended this process, if the one that started it wants to know."""
    if path := os.environ.get(ERROR_FILE):
        Path(path).write_text(json.dumps({"kind": type(error).__name__, "message": str(error)}))


def show_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    """A warning for a person: what it says, not where in the code."""
    print(f"recmill: warning: {message}", file=sys.stderr)


def write_any_character(stream: object) -> None:
    """Let a stream of an encoding that lacks a character write its number, and not fail."""
    if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding.lower() != "utf-8"):
        stream.reconfigure(errors="backslashreplace")


def run() -> NoReturn:
    """Run the command line and end the process with its status."""
    warnings.showwarning = show_warning
    write_any_character(sys.stdout)
    status = main()
    if "WORLD_SIZE" not in os.environ:
        sys.exit(status)
    from recmill.world import leave  # numpy behind it is not for those who ask for --help

    leave(status)
