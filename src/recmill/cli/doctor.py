"""`recmill doctor`: what this machine has, what is missing, and the command that brings it."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from recmill.cli.options import Verbs

# What each extra is for, and the packages that show that it is installed.
EXTRAS = {
    "sharded": ("tables on several processes and on CUDA", ("torchrec", "fbgemm-gpu")),
    "dev": ("tests, types and linting", ("pytest", "mypy", "ruff", "hypothesis")),
}


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("doctor", help="show versions, device, threads, memory, disk and what is missing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Examine and print; the exit status is 0 if the core works."""
    report = examine()
    if args.json:
        print(json.dumps(report))
    else:
        print_report(report)
    return 0 if report["healthy"] else 1


def examine() -> dict[str, Any]:
    """The findings as plain data."""
    from recmill.observe.environment import describe_environment

    environment = describe_environment()
    core = [
        name for name in ("torch", "numba", "numpy", "pydantic", "safetensors") if not environment["versions"][name]
    ]
    missing = [{"what": name, "why": "the core", "install": "make install"} for name in core]
    missing += missing_extras()
    return {
        "healthy": not core,
        "python": environment["python"],
        "commit": environment["commit"],
        "machine": environment["machine"],
        "versions": environment["versions"],
        "device": find_device(),
        "threads": find_threads(),
        "memory_free_gib": free_memory_gib(),
        "disk_free_gib": round(shutil.disk_usage(Path.cwd()).free / 2**30, 1),
        "missing": missing,
    }


def missing_extras() -> list[dict[str, str]]:
    """The extras that are not completely installed."""
    from recmill.observe.environment import package_version

    return [
        {
            "what": f"recmill[{extra}] ({', '.join(absent)})",
            "why": purpose,
            "install": "make install-full",
        }
        for extra, (purpose, packages) in EXTRAS.items()
        if (absent := [name for name in packages if package_version(name) is None])
    ]


def find_device() -> str:
    """Where training would run, and what else torch sees."""
    try:
        import torch
    except ImportError as error:
        return f"none: torch does not load ({error})"
    from recmill.training.device import INSTALL_SHARDED, choose_gpus, has_torchrec

    num_gpus = torch.cuda.device_count()
    if choose_gpus("auto", num_gpus, is_torchrec_there=has_torchrec()):
        return f"cuda ({num_gpus} x {torch.cuda.get_device_name(0)})"
    if num_gpus:
        return f"cpu ({torch.cuda.get_device_name(0)} is there; to train on it, install TorchRec: {INSTALL_SHARDED})"
    return "cpu"


def find_threads() -> dict[str, int | None]:
    """How many threads torch and our kernels would use."""
    try:
        import numba
        import torch
    except ImportError:
        return {"torch": None, "numba": None}
    return {"torch": torch.get_num_threads(), "numba": numba.get_num_threads()}


def free_memory_gib() -> float:
    """Memory that programs may still take."""
    import psutil

    return round(psutil.virtual_memory().available / 2**30, 1)


def print_report(report: dict[str, Any]) -> None:
    """The findings for a person."""
    machine, threads = report["machine"], report["threads"]
    print(
        f"recmill   {report['versions']['recmill']} (commit {report['commit'] or 'unknown'}), Python {report['python']}"
    )
    print(f"machine   {machine['cpu']}, {machine['cores']} cores, {machine['system']}")
    print(f"device    {report['device']}")
    print(f"threads   torch {threads['torch']}, kernels {threads['numba']}")
    print(f"memory    {report['memory_free_gib']} of {machine['memory_gib']} GiB free")
    print(f"disk      {report['disk_free_gib']} GiB free here")
    others = {name: v for name, v in report["versions"].items() if name != "recmill"}
    print("versions  " + ", ".join(f"{name} {version or '-'}" for name, version in others.items()))
    for item in report["missing"]:
        print(f"missing   {item['what']}, for {item['why']}: {item['install']}")
    print("healthy" if report["healthy"] else "not healthy: the core is incomplete")
