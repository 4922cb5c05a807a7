"""Law *hostile*: a run whose files lie, with checksums that agree, is rejected by name or has the same result.

Each case alters a copy of a run; `resealed` gives altered states the checksums they would have had.
"""

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recmill.files import write_manifest
from recmill.own_files import sealed

Case = Callable[[Path, Path], None]  # the run to alter, and another of the same shape
HUGE = 10**30
DEEP = "[" * 100_000 + "]" * 100_000


def newest(run_dir: Path) -> Path:
    return max((run_dir / "checkpoints").glob("step_*"))


@contextmanager
def resealed(directory: Path) -> Iterator[dict[str, Any]]:
    """The facts of a saved state's manifest, to be altered with its files; then all checksums are right."""
    facts = json.loads((directory / "manifest.json").read_text())
    facts = {key: value for key, value in facts.items() if key not in ("files", "manifest_sha256")}
    yield facts
    write_manifest(directory, **facts)


def progress(**changes: Any) -> Case:
    """Another progress in every checkpoint."""

    def alter(run_dir: Path, _other: Path) -> None:
        for directory in (run_dir / "checkpoints").glob("step_*"):
            with resealed(directory):
                path = directory / "progress.json"
                path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return alter


def cursors(place: int, value: Any) -> Case:
    """Another epoch, block or row in every lane of the newest checkpoint."""

    def alter(run_dir: Path, _other: Path) -> None:
        path = newest(run_dir) / "progress.json"
        content = json.loads(path.read_text())
        for cursor in content["position"]:
            cursor[place] = value
        with resealed(path.parent):
            path.write_text(json.dumps(content))

    return alter


def text(name: str, change: Callable[[str], str]) -> Case:
    """Another text in a file of the newest checkpoint."""

    def alter(run_dir: Path, _other: Path) -> None:
        with resealed(newest(run_dir)):
            path = newest(run_dir) / name
            path.write_text(change(path.read_text()))

    return alter


def manifest(change: Callable[[dict[str, Any]], Any]) -> Case:
    """Other facts in the manifests of all that the run has saved."""

    def alter(run_dir: Path, _other: Path) -> None:
        for path in run_dir.rglob("manifest.json"):
            content = json.loads(path.read_text())
            content.pop("manifest_sha256")
            change(content)
            path.write_text(json.dumps(content))

    return alter


def tensors(name: str, change: Callable[[dict[str, Any]], Any], length: int | None = None) -> Case:
    """Another header in a file of tensors, wherever the run has one."""

    def alter(run_dir: Path, _other: Path) -> None:
        for path in run_dir.rglob(name):
            content = path.read_bytes()
            (size,) = struct.unpack("<Q", content[:8])
            header = json.loads(content[8 : 8 + size])
            change(header)
            altered = json.dumps(header).encode()
            with resealed(path.parent):
                path.write_bytes(struct.pack("<Q", length or len(altered)) + altered + content[8 + size :])

    return alter


def results(change: Callable[[dict[str, Any]], Any]) -> Case:
    """Other results, sealed again."""

    def alter(run_dir: Path, _other: Path) -> None:
        path = run_dir / "results.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(sealed(content)))

    return alter


def metrics(line: str) -> Case:
    """A line before the others."""

    def alter(run_dir: Path, _other: Path) -> None:
        path = run_dir / "metrics.jsonl"
        path.write_text(line + "\n" + path.read_text())

    return alter


def copied(name: str) -> Case:
    """A part of the other run in place of this one's."""

    def alter(run_dir: Path, other: Path) -> None:
        if (run_dir / name).is_dir():
            shutil.rmtree(run_dir / name)
            shutil.copytree(other / name, run_dir / name)
        else:
            shutil.copyfile(other / name, run_dir / name)

    return alter


def _first(header: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(header.values()))
    return found


FOREIGN: dict[str, Case] = {name: copied(name) for name in ("checkpoints", "model", "config.toml", "results.json")}

CASES: dict[str, Case] = {
    **{f"row {value}": cursors(2, value) for value in (-1, 10**6, 10**12, HUGE, 1.5, "1", None)},
    **{f"block {value}": cursors(1, value) for value in (-1, 10**6, HUGE)},
    **{f"epoch {value}": cursors(0, value) for value in (-1, 10**12, HUGE)},
    "no lanes": progress(position=[]),
    "too many lanes": progress(position=[[0, 0, 0]] * 1000),
    "lanes of two numbers": progress(position=[[0, 0]]),
    "position a text": progress(position="abc"),
    **{f"step {value}": progress(step=value) for value in (-1, 10**12, HUGE, 2.0, True)},
    "rows negative": progress(num_rows=-1),
    "best of the future": progress(best={"score": 0.5, "step": 10**9}),
    "best with more": progress(best={"score": 0.5, "step": 1, "more": 1}),
    "another field": progress(surprise=1),
    "interval of texts": progress(interval={"num_rows": "1", "loss_sum": 0, "train_s": 0, "blocked_s": 0}),
    "not a number": text("progress.json", lambda old: old.replace('"train_s": ', '"train_s": NaN, "x": ', 1)),
    "key twice": text("progress.json", lambda old: '{"step": 1, ' + old[1:]),
    "deep progress": text("progress.json", lambda _: DEEP),
    "counters negative": text("counters.json", lambda old: old.replace('"table_updates": ', '"table_updates": -', 1)),
    "counters a list": text("counters.json", lambda _: "[]"),
    "deep counters": text("counters.json", lambda _: '{"data": ' + DEEP + "}"),
    "path above": manifest(lambda facts: facts["files"].update({"../secret": {"bytes": 6}})),
    "path absolute": manifest(lambda facts: facts["files"].update({"/etc/passwd": {"bytes": 6}})),
    "half a character": manifest(lambda facts: facts["files"].update({"\ud800": {"bytes": 6}})),
    "zero in a name": manifest(lambda facts: facts["files"].update({"a\0b": {"bytes": 6}})),
    "bytes negative": manifest(lambda facts: facts["files"]["dense.safetensors"].update(bytes=-1)),
    "checksum a number": manifest(lambda facts: facts["files"]["dense.safetensors"].update(xxh3_128=3)),
    "step of the manifest": manifest(lambda facts: facts.update(step=-3)),
    "kind of the manifest": manifest(lambda facts: facts.update(kind=["model"])),
    "rows of the manifest": manifest(lambda facts: facts.update(rows={"a": 1})),
    "run of the manifest": manifest(lambda facts: facts.update(run=[1])),
    "header too long": tensors("dense.safetensors", lambda _: None, length=1 << 62),
    "header too short": tensors("dense.safetensors", lambda _: None, length=5),
    "offsets outside": tensors("dense.safetensors", lambda h: _first(h).update(data_offsets=[0, 1 << 40])),
    "offsets negative": tensors("dense.safetensors", lambda h: _first(h).update(data_offsets=[-8, 8])),
    "shape too large": tensors("dense.safetensors", lambda h: _first(h).update(shape=[1 << 40])),
    "shape negative": tensors("dense.safetensors", lambda h: _first(h).update(shape=[-1, -1])),
    "shape flat": tensors("tables*.safetensors", lambda h: _first(h).update(shape=[200])),
    "dtype unknown": tensors("dense.safetensors", lambda h: _first(h).update(dtype="F7")),
    "dtype other": tensors("dense.safetensors", lambda h: _first(h).update(dtype="I32")),
    "table of integers": tensors("tables*.safetensors", lambda h: _first(h).update(dtype="I32")),
    "another name": tensors("optimizer.safetensors", lambda h: h.update(surprise=h.pop(next(iter(h))))),
    "part that lies": tensors("tables*.safetensors", lambda h: h.update({"x[0:9,0:9]": h.pop(next(iter(h)))})),
    "header a list": tensors("optimizer.safetensors", lambda h: h.update({next(iter(h)): []})),
    "best above": results(lambda found: found.update(best={"auroc": 0.5, "step": 6, "model": "../other/model"})),
    "best absolute": results(lambda found: found.update(best={"auroc": 0.5, "step": 6, "model": "/tmp"})),
    "best a text": results(lambda found: found.update(best="model")),
    "best of another step": results(lambda found: found.update(best={"auroc": 0.5, "step": 7, "model": "model"})),
    "test a number": results(lambda found: found.update(test=3)),
    "no best": results(lambda found: found.pop("best")),
    "metrics deep": metrics(DEEP),
    "metrics of texts": metrics('{"kind": "train", "step": "2", "time": 0}'),
    "metrics huge": metrics('{"kind": "train", "step": 1' + "0" * 5000 + ', "time": 0}'),
    "metrics twice": metrics('{"kind": "train", "step": 1, "step": 2, "time": 0}'),
}
