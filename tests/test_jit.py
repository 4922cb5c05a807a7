from pathlib import Path

import numba
import pytest

from recmill.jit import source_key, use_fresh_cache


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
