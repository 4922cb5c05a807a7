"""The house rules that a program can check: who imports whom, where heavy guests live, how large things are."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
SOURCE = CHECKOUT / "src" / "recmill"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted({path.parent for path in FILES if path.parent != SOURCE})

BASE = {
    *("calibration", "errors", "files", "jit", "lock", "memory", "seeds", "metrics", "slices", "ranking"),
    *("own_files", "peers", "regular", "run_stamp", "sampled", "sizes", "uncertainty", "verified", "world"),
}
MODELS = {"models.parts", "models.click", "models.sequence"}
DATA = {"data.batch", "data.text", "data.logs", "data.encode", "data.stream", "data.prepared", "data.events"}
DATA |= {"data.values"}
TRAINING = {
    *("training.checkpoint", "training.optimize", "training.loop", "training.click", "training.sequence"),
    *("training.progress", "training.device", "training.threads", "training.footprint", "training.vocabulary"),
    "training.raw_files",
}
ENDS = {"data.audit", "data.infer", "data.synthetic", "training.job"}  # what is built on, and not built with
FAMILIES = {"training.click", "training.sequence"}
# Who may import whom, besides itself: a package, or a part of one.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "jit": {"files"},
    "memory": set(),
    "seeds": {"jit"},
    "files": {"errors", "lock", "own_files"},
    "lock": {"errors"},
    "own_files": {"errors", "regular"},
    "regular": {"errors"},
    "run_stamp": {"errors", "files", "own_files", "sampled"},
    "sampled": {"regular"},
    "verified": {"errors", "files", "regular", "settings"},
    "settings": {"errors", "sizes"},
    "sizes": {"errors"},
    "metrics": {"jit", "weighted_metrics"},
    "weighted_metrics": set(),
    "uncertainty": set(),
    "slices": {"uncertainty"},
    "calibration": {"jit"},
    "ranking": {"settings", "errors", "jit", "seeds"},
    "cores": set(),
    "peers": {"errors"},
    "world": {"cores", "errors", "peers"},
    "observe": BASE,
    "data.batch": BASE,
    "data.text": BASE | {"settings"},
    "data.logs": BASE | {"settings", "data.text"},
    "data.encode": BASE | {"settings", "data.batch", "data.text"},
    "data.stream": BASE | {"settings", "data.batch", "data.text", "data.logs", "data.encode"},
    "data.values": BASE | {"settings", "data.text", "data.logs"},
    "data.prepared": BASE
    | {"settings", "data.batch", "data.text", "data.logs", "data.encode", "data.stream", "data.values"},
    "data.events": BASE | {"settings", "data.batch", "data.logs", "data.stream", "data.prepared"},
    "data.audit": BASE
    | {"settings", "observe", "data.batch", "data.text", "data.logs", "data.prepared", "data.values"},
    "data.infer": BASE | {"settings", "data.text", "data.logs", "data.audit"},
    "data.synthetic": BASE | {"settings"},
    "embeddings": BASE | {"settings"},
    "models.parts": BASE | {"settings"},
    "models.click": BASE | {"settings", "data.batch", "embeddings", "models.parts"},
    "models.sequence": BASE | {"settings", "embeddings", "models.parts"},
    "training.progress": {"data.batch", "own_files"},
    "training.device": {"errors", "settings"},
    "training.threads": set(),
    "training.checkpoint": BASE
    | DATA
    | {"settings", "embeddings", "training.optimize", "training.progress", "training.vocabulary", "training.raw_files"},
    "training.optimize": BASE | {"settings", "embeddings"},
    "training.loop": BASE | DATA | {"settings", "observe", "training.checkpoint", "training.progress"},
    "training.footprint": {"errors"},
    "training.raw_files": {"files", "sampled", "settings", "data.logs"},
    "training.vocabulary": {"errors", "files", "verified", "settings", "data.encode", "data.prepared"},
    "training.click": BASE | DATA | MODELS | {"settings", "embeddings", "data.synthetic"} | (TRAINING - FAMILIES),
    "training.sequence": BASE | DATA | MODELS | {"settings", "embeddings"} | (TRAINING - FAMILIES),
    # a family is chosen by its name, and imported when a job of it is opened
    "training.job": BASE | {"settings", "observe", "models.click"} | (TRAINING - FAMILIES),
    "recipes": {"errors", "files", "own_files", "run_stamp", "settings", "data.prepared"},
    "serve": BASE | DATA | MODELS | TRAINING | {"settings", "observe", "embeddings", "recipes", "training.job"},
    "launch": BASE | {"observe"},
    "api": BASE | DATA | MODELS | TRAINING | {"settings", "observe", "recipes", "serve"} | ENDS,
    "__main__": {"cli", "errors"},
    "__init__": {"errors", "settings", "recipes", "serve", "api"},
}
MAY_IMPORT["cli"] = set(MAY_IMPORT) - {"__main__", "__init__"}
# Heavy packages and the only places that may import them.
GUESTS = {
    "torch": (
        *("world.py", "peers.py", "embeddings/", "models/", "training/", "serve/", "launch/torchrun.py"),
        "cli/doctor.py",
    ),
    "torchrec": ("embeddings/shard.py", "embeddings/shard_fused.py", "embeddings/shard_rows.py"),
    "fbgemm_gpu": (),
    "torchx": ("launch/torchx.py",),
    "polars": ("data/events/interactions.py", "data/synthetic/tables.py", "api/run.py", "serve/frames.py"),
    "pyarrow": (
        *("data/events/arrow.py", "data/logs/json_arrow.py", "data/logs/parquet_rows.py", "data/prepared/parquet.py"),
        *("data/values/values_file.py", "data/logs/sorting/tables.py", "serve/table_file.py"),
        "training/checkpoint/stored/rows_file.py",
    ),
    "tensorboard": ("observe/record.py",),
    "numba": (
        *("jit.py", "data/text/swar.py", "models/parts/tile.py", "models/parts/deal.py", "embeddings/stack.py"),
        *("embeddings/engine.py", "training/threads.py", "cli/doctor.py"),
    ),
    "llvmlite": ("data/text/swar.py", "models/parts/tile.py", "models/parts/deal.py", "embeddings/stack.py"),
    "rich": ("observe/console.py", "cli/"),
}
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 400, 50, 7
MAX_FRONT_DOOR_PARAMETERS = 15  # options of the front door are a user's words, each with a default
MAX_ROOM_FILES, MANY_FILES = 22, 5


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def room_of(module: str) -> str:
    """The package that a module is in; of packages that have parts, the part."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in ("data", "models", "training") and len(parts) > 1 else parts[0]


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


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.name != "__init__.py" or path.parent == SOURCE], ids=module_of
)
def test_imports_flow_down(path: Path) -> None:
    room = room_of(module_of(path))
    for name in own_imports_of(path):
        assert room_of(name) in MAY_IMPORT[room] | {room}, f"{module_of(path)} imports {name}"


def test_what_may_be_imported_flows_down_too() -> None:
    """The table itself has no circle: of two packages at most one may import the other."""
    left = {room: set(below) for room, below in MAY_IMPORT.items()}
    while leaves := {room for room, below in left.items() if not below & left.keys()}:
        left = {room: below for room, below in left.items() if room not in leaves}
    assert not left, f"circle among {sorted(left)}"


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
    is_front_door = path.parent.name == "api"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            parameters = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            most = MAX_FRONT_DOOR_PARAMETERS if is_front_door else MAX_PARAMETERS
            assert length <= MAX_FUNCTION_LINES, f"{path}:{node.lineno} {node.name} has {length} lines"
            assert parameters <= most, f"{path}:{node.lineno} {node.name} has {parameters} parameters"


def test_no_room_is_empty_and_every_module_says_what_it_is() -> None:
    for path in FILES:
        docstring = ast.get_docstring(tree_of(path))
        assert docstring, f"{path} has no docstring"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(SOURCE).as_posix())
def test_a_room_is_of_a_size_to_know_and_its_readme_names_every_file(room: Path) -> None:
    files = [path for path in room.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= MAX_ROOM_FILES, f"{room} has {len(files)} files"
    if len(files) > MANY_FILES:
        readme = (room / "README.md").read_text(encoding="utf-8")
        missing = [path.name for path in files if f"`{path.name}`" not in readme]
        assert not missing, f"{room / 'README.md'} does not name {missing}"


def test_class_names_are_unique() -> None:
    homes = defaultdict[str, list[str]](list)
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module_of(path))
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_assertions_do_not_guard_what_a_user_gives() -> None:
    """With `python -O` they are gone: settings and files are checked by errors, which stay."""
    for room in ("settings", "recipes", "api"):
        for path in (SOURCE / room).rglob("*.py"):
            found = [node.lineno for node in ast.walk(tree_of(path)) if isinstance(node, ast.Assert)]
            assert not found, f"{path}:{found}"


def test_settings_are_changed_only_where_the_result_is_validated() -> None:
    """`with_` validates; pydantic's own copies take any value, and any name, for a setting."""
    for path in (*FILES, *sorted((CHECKOUT / "benchmarks").rglob("*.py"))):
        found = [
            node.lineno
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Attribute) and node.attr in ("model_copy", "model_construct")
        ]
        assert not found, f"{path}:{found}"


def test_no_program_hides_a_module_of_python() -> None:
    """A program's own directory comes first where modules are looked for: benchmarks/csv.py would be `import csv`."""
    programs = [path.stem for room in ("benchmarks", "examples") for path in (CHECKOUT / room).glob("*.py")]
    assert not set(programs) & sys.stdlib_module_names


def test_tests_import_neither_other_tests_nor_benchmarks() -> None:
    """What tests share is no test; what they share with benchmarks is a law. Tests of benchmarks import those."""
    paths = sorted((CHECKOUT / "tests").rglob("*.py"))
    modules = {path: ".".join(path.relative_to(CHECKOUT).with_suffix("").parts) for path in paths}
    tests = {module for path, module in modules.items() if path.name.startswith("test_")}
    for path in paths:
        names = set[str]()
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        assert not names & tests, f"{path} imports {names & tests}"
        is_of_benchmarks = path.parent == CHECKOUT / "tests" / "benchmarks"
        assert is_of_benchmarks or not any(name.split(".")[0] == "benchmarks" for name in names), path
