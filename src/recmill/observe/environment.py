"""The machine and the software a result came from."""

import hashlib
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "recmill",
    "torch",
    "numba",
    "numpy",
    "polars",
    "pyarrow",
    "pydantic",
    "safetensors",
    "torchrec",
    "fbgemm-gpu",
)


def describe_environment() -> dict[str, Any]:
    """All of it, as plain data."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": git_commit(),
        "machine": describe_machine(),
        "python": platform.python_version(),
        "versions": {name: package_version(name) for name in PACKAGES},
    }


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory and system."""
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def package_version(name: str) -> str | None:
    """The installed version, found without importing the package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def source_version() -> str:
    """The version of recmill with a digest of its source files, which may have been changed since."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return f"{package_version('recmill')} (source {digest.hexdigest()[:8]})"


def git_commit() -> str | None:
    """The commit of the checkout this package runs from, with a + if files differ from it; None outside of one."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
