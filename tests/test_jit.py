import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from recmill.jit import KernelFiles, njit, source_key, use_fresh_cache, variant_of


def test_the_cache_changes_its_name_with_any_kernel_and_with_nothing_else(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernel.py").write_text("@njit\ndef f(): return 1")
    (package / "plain.py").write_text("x = 1")
    before = source_key(package)
    (package / "plain.py").write_text("x = 2")
    assert source_key(package) == before
    (package / "kernel.py").write_text("@njit\ndef f(): return 2")
    assert source_key(package) != before


def test_caches_of_earlier_sources_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    parent = tmp_path / "cache"
    (parent / "kernels-0123").mkdir(parents=True)
    (parent / "other").mkdir()
    directory = use_fresh_cache(tmp_path, parent)
    directory.mkdir()
    assert str(directory) == numba.config.CACHE_DIR
    assert sorted(path.name for path in parent.iterdir()) == sorted([directory.name, "other"])
    assert use_fresh_cache(tmp_path, parent) == directory
    assert directory.exists()


def _multiplier(factor: float) -> Any:
    @njit()
    def multiply(x: float) -> float:
        return factor * x

    return multiply


def _twice(kernel: Any, name: str) -> Any:
    @njit(cache=True)
    def twice(x: float) -> float:
        return kernel(kernel(x)) if name else x

    return twice


def test_a_variant_is_known_by_all_that_it_was_made_for() -> None:
    def variant(factor: float, name: str = "a") -> str:
        return variant_of(_twice(_multiplier(factor), name).py_func)

    assert variant(2.0) == variant(2.0)
    assert len({variant(2.0), variant(3.0), variant(2.0, "b"), variant_of(_multiplier(2.0).py_func)}) == 4


def test_a_kernel_may_not_be_made_for_what_a_cache_cannot_tell_apart() -> None:
    with pytest.raises(TypeError, match=r"twice is made for .*cannot be told"):
        _twice(np.zeros(2), "a")


FOUR_AT_A_TIME = """
import sys
import time
from pathlib import Path
from recmill.jit import KernelFiles, njit

def adder(number):
    @njit(cache=True)
    def add(x):
        return x + number
    return add

first, start = int(sys.argv[1]), Path(sys.argv[2])
while not start.exists():
    time.sleep(0.001)
kernels = [adder(first + i) for i in range(10)]
sums = [kernel(0) for kernel in kernels]
print(sums == [first + i for i in range(10)], sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels))
"""


def test_processes_that_compile_variants_at_the_same_time_do_not_mix_them_up(tmp_path: Path) -> None:
    """Twice: who finds the kernels compiled finds his own, and all of them."""
    program = tmp_path / "adders.py"  # a cache is kept for functions in files only
    program.write_text(FOUR_AT_A_TIME)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    start = tmp_path / "start"
    for hits in (0, 10):
        start.unlink(missing_ok=True)
        children = [
            subprocess.Popen(
                [sys.executable, str(program), str(first), str(start)],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for first in (0, 10, 20, 30)
        ]
        start.touch()
        assert [child.communicate()[0].split() for child in children] == [["True", str(hits)]] * 4


def test_half_a_file_is_no_kernel(tmp_path: Path) -> None:
    files = KernelFiles(tmp_path, "kernel", stamp=1)
    files.save("key", {"code": 3})
    assert (files.load("key"), files.load("another")) == ({"code": 3}, None)
    assert KernelFiles(tmp_path, "kernel", stamp=2).load("key") is None  # of an older source
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert files.load("key") is None


UPDATES = """
import sys
import numpy as np
from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer
from recmill.models.parts.interaction import DotInteraction
import torch
torch.set_num_threads(1)
digest, hits = [], 0
for kind in ("adagrad", "rowwise_adam", "ftrl"):
    tables = LocalTables([TableSpec("a", 50), TableSpec("b", 9)], 5, TableOptimizer(kind=kind, lr=0.05), seed=1)
    layers = DotInteraction(3)
    generator = np.random.default_rng(0)
    for _ in range(9):
        ids = np.stack([generator.integers(0, 50, 40), generator.integers(0, 9, 40)], axis=1)
        dense = torch.from_numpy(generator.standard_normal((40, 5)).astype(np.float32))
        layers(dense, tables.look_up(ids)).square().sum().backward()
    digest += [tables.weights("a").tobytes().hex(), tables.state("b").tobytes().hex()]
    hits += sum(tables._update.stats.cache_hits.values())
print(hits, *digest)
"""


def test_kernels_loaded_from_the_cache_give_the_bits_of_those_that_were_compiled(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_NUM_THREADS": "1"}
    compiled, loaded = (
        subprocess.run(
            [sys.executable, "-c", UPDATES], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    )
    assert (compiled[0], loaded[0]) == ("0", "3")
    assert compiled[1:] == loaded[1:]
