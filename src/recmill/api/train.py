"""Train a model: in this process, or in several of this machine."""

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recmill import errors
from recmill.api.run import Run
from recmill.errors import ERROR_FILE, ConfigError, FailureError, RecmillError
from recmill.files import CONFIG
from recmill.recipes.resolve import Mode, Overrides, Sources, resolve_for_run, sources_of
from recmill.settings.families import AnyConfig
from recmill.settings.tree import to_toml

if TYPE_CHECKING:
    from recmill.api.auto import Tell
    from recmill.data.logs.raw_format import AskedColumns
    from recmill.models.click.own import BuildLayers

_OPTIONS: dict[Mode, list[str]] = {
    "new": [],
    "overwrite": ["--overwrite"],
    "resume": ["--start-or-resume"],
    "start_or_resume": ["--start-or-resume"],
}


def train(
    source: str | Path | AnyConfig | None = None,
    *,
    run: str | Path,
    data: str | Path | None = None,
    overrides: Overrides = (),
    schema: str | None = None,
    vocabulary: str | Path | None = None,
    label: str | None = None,
    time: str | None = None,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    procs: int = 1,
    model: "BuildLayers | None" = None,
    show: bool = False,
) -> Run:
    """Train a model and evaluate it; the run directory, opened.

    `source` is a recipe, a TOML file, a run directory or settings. With `resume` a run that was started goes on from
    its newest checkpoint, and one that was not starts. `model` is a function of (settings, schema) that builds your own
    layers: a module that takes dense features (B, N) and embeddings (B, F, D) and returns logits (B). `label`, `time`,
    `ignore` and `categories` name columns where the recipe auto infers a schema. `show` prints the progress on
    standard error.
    """
    if procs < 1:
        raise ConfigError(f"procs = {procs}: a run has at least one process")
    if resume and overwrite:
        raise ConfigError("resume goes on with a run and overwrite replaces it; give one of them")
    options = {} if model is None else {"model.kind": "custom", "model.layers": _name_of(model)}
    sources = replace(
        sources_of(source), data=data, schema=schema, vocabulary=vocabulary, overrides=overrides, options=options
    )
    mode: Mode = "overwrite" if overwrite else "new"
    if resume:
        mode = "resume" if source is None else "start_or_resume"
    from recmill.data.logs.raw_format import AskedColumns

    asked = AskedColumns(label, time, tuple(ignore), tuple(categories))
    config, goes_on = resolve_or_choose(sources, Path(run), mode, asked, print_line if show else _say_nothing, procs)
    if procs > 1:
        _train_in_processes(config, Path(run), ["--procs", str(procs), *_OPTIONS[mode]], model, show=show)
    else:
        from recmill.observe.console import ProgressLine, quiet_line
        from recmill.training.job import run_job

        line = ProgressLine() if show else quiet_line()
        run_job(config, run, resume=goes_on, overwrite=overwrite, build_layers=model, line=line)
    return Run(run, model)


def resolve_or_choose(
    sources: Sources, run_dir: Path, mode: Mode, asked: "AskedColumns", tell: "Tell", procs: int | None = None
) -> tuple[AnyConfig, bool]:
    """The settings of a run, and whether it goes on; those of the recipe auto are chosen from its data first."""
    if sources.recipe != "auto":
        if asked.label is not None:
            raise ConfigError(f"--label {asked.label} is for the recipe auto; elsewhere the schema names the label")
        for option, names in {
            "--time": asked.time,
            "--ignore": asked.ignored,
            "--categories": asked.categories,
        }.items():
            if names:
                raise ConfigError(f"{option} is for the recipe auto; elsewhere the schema says what columns are")
        return resolve_for_run(sources, run_dir, mode)
    if mode in ("resume", "start_or_resume") and (run_dir / CONFIG).is_file():
        return resolve_for_run(replace(sources, recipe=None, data=None, schema=None), run_dir, "resume")
    from recmill.api.auto import chosen_sources, refuse_processes
    from recmill.training.loop.run import refuse_occupied_run

    refuse_processes(procs)
    refuse_occupied_run(run_dir, overwrite=mode == "overwrite")
    return resolve_for_run(chosen_sources(sources, run_dir, asked, tell), run_dir, mode)


def print_line(line: str) -> None:
    """Tell a person, on standard error."""
    print(line, file=sys.stderr)


def _say_nothing(_line: str) -> None:
    pass


def _name_of(build_layers: "BuildLayers") -> str:
    from recmill.models.click.own import name_of

    return name_of(build_layers)


def _train_in_processes(
    config: AnyConfig, run_dir: Path, options: list[str], build_layers: "BuildLayers | None", *, show: bool
) -> None:
    """What `recmill train --procs N` does, and its error as an exception."""
    with tempfile.TemporaryDirectory() as scratch:
        settings, error_file = Path(scratch) / "settings.toml", Path(scratch) / "error.json"
        settings.write_text(to_toml(config))
        if build_layers is not None:
            options = [*options, "--layers", _place_of(build_layers)]
        words = ["train", "--config", str(settings), "--run", str(run_dir), *options]
        process = subprocess.Popen(
            [sys.executable, "-m", "recmill", *words],
            env={**os.environ, ERROR_FILE: str(error_file)},
            stdout=subprocess.DEVNULL,
            stderr=None if show else subprocess.PIPE,
            text=True,
        )
        try:
            _, printed = process.communicate()
        except BaseException:  # Ctrl-C in a notebook: the run saves its state and ends
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
        if process.returncode:
            raise _read_error(error_file, process.returncode, printed or "")


def _place_of(build_layers: "BuildLayers") -> str:
    """Where another process finds the function."""
    name = getattr(build_layers, "__qualname__", "")
    try:
        path = inspect.getsourcefile(build_layers)
    except TypeError:  # neither a function nor a class
        path = None
    if path is None or not name.isidentifier() or not Path(path).is_file():
        raise ConfigError(
            f"model = {name or build_layers!r}: several processes import the function by its name; "
            "define it at the top of a module, or train with procs=1"
        )
    return f"{Path(path).resolve()}:{name}"


def _read_error(error_file: Path, status: int, printed: str) -> RecmillError:
    """The exception with which the main process of several has ended."""
    if error_file.is_file():
        found = json.loads(error_file.read_text())
        kind = getattr(errors, found["kind"], FailureError)
        error: RecmillError = kind.__new__(kind)  # some take other arguments than a message
        error.args = (found["message"],)
        error.exit_status = status
        return error
    last = "\n".join(printed.strip().splitlines()[-5:])
    return FailureError(f"training in several processes ended with status {status}: {last}")
