"""The house rules that a program can check: who imports whom, where heavy guests live, how large things are."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "recmill"
FILES = sorted(SOURCE.rglob("*.py"))

BASE = {"errors", "files", "jit", "memory", "seeds", "metrics", "ranking", "world"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "jit": {"files"},
    "memory": set(),
    "seeds": {"jit"},
    "files": {"errors"},
    "settings": BASE | {"data", "embeddings", "models", "training"},
    "metrics": {"jit"},
    "ranking": {"settings", "errors", "jit", "seeds"},
    "cores": set(),
    "world": {"cores", "errors"},
    "observe": BASE,
    "data": BASE | {"settings", "observe"},
    "embeddings": BASE | {"settings", "observe"},
    "models": BASE | {"settings", "data.batch", "embeddings"},
    "training": BASE | {"settings", "observe", "data", "models", "embeddings"},
    "serve": BASE | {"settings", "observe", "data", "models", "embeddings", "training"},
    "recipes": BASE | {"settings", "data", "models", "embeddings", "training"},
    "launch": BASE | {"observe"},
    "cli": BASE | {"settings", "observe", "data", "models", "embeddings", "training", "serve", "recipes", "launch"},
    "__main__": {"cli"},
    "__init__": BASE | {"settings", "data", "training", "recipes"},
}
# Heavy packages and the only places that may import them.
GUESTS = {
    "torch": ("world.py", "embeddings/", "models/", "training/", "launch/torchrun.py", "cli/doctor.py"),
    "torchrec": ("embeddings/shard.py", "embeddings/shard_fused.py", "embeddings/shard_rows.py"),
    "fbgemm_gpu": (),
    "torchx": ("launch/torchx.py",),
    "polars": ("data/events/interactions.py",),
    "pyarrow": ("data/events/arrow.py", "data/prepared/parquet.py"),
    "tensorboard": ("observe/record.py",),
    "numba": (
        "jit.py",
        "data/text/swar.py",
        "models/parts/tile.py",
        "models/parts/deal.py",
        "embeddings/stack.py",
        "embeddings/local.py",
        "training/click/assemble.py",
        "cli/doctor.py",
    ),
    "llvmlite": ("data/text/swar.py", "models/parts/tile.py", "models/parts/deal.py", "embeddings/stack.py"),
    "rich": ("observe/console.py", "cli/"),
}
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 400, 50, 7


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            is_package = (SOURCE.parent / Path(*node.module.split("."))).is_dir()
            yield from names if is_package else [node.module]


def own_imports_of(path: Path) -> set[str]:
    return {name.removeprefix("recmill.") for name in imports_of(path) if name.startswith("recmill.")}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_flow_down(path: Path) -> None:
    room = module_of(path).split(".")[0]
    allowed = MAY_IMPORT[room] | {room}
    for name in own_imports_of(path):
        parts = name.split(".")
        assert parts[0] in allowed or ".".join(parts[:2]) in allowed, f"{module_of(path)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_heavy_guests_stay_in_their_rooms(path: Path) -> None:
    place = path.relative_to(SOURCE).as_posix()
    for name in imports_of(path):
        homes = GUESTS.get(name.split(".")[0])
        assert homes is None or place.startswith(homes), f"{place} imports {name}"


def test_there_are_no_import_cycles() -> None:
    modules = {module_of(path): path for path in FILES}
    # the front door imports lazily, by name, so that `import recmill` stays light
    graph = {
        name: {i for i in own_imports_of(path) if i in modules} for name, path in modules.items() if name != "__init__"
    }
    while leaves := {name for name, below in graph.items() if not below & graph.keys()}:
        graph = {name: below for name, below in graph.items() if name not in leaves}
    assert not graph, f"cycle among {sorted(graph)}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_sizes(path: Path) -> None:
    num_lines = len(path.read_text(encoding="utf-8").splitlines())
    assert num_lines <= MAX_FILE_LINES, f"{path} has {num_lines} lines"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            parameters = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            assert length <= MAX_FUNCTION_LINES, f"{path}:{node.lineno} {node.name} has {length} lines"
            assert parameters <= MAX_PARAMETERS, f"{path}:{node.lineno} {node.name} has {parameters} parameters"


def test_no_room_is_empty_and_every_module_says_what_it_is() -> None:
    for path in FILES:
        docstring = ast.get_docstring(tree_of(path))
        assert docstring, f"{path} has no docstring"
