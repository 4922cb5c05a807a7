"""What a person sees of results: a line for each thing that was measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def print_results(results: Mapping[str, Any], run_dir: Path) -> None:
    """The end of a run; the evaluations have been shown as they came."""
    is_click = "auroc" in results["test"]
    parts = [f"trained on {results['rows']:,} {'rows' if is_click else 'windows'} in {results['step']:,} steps"]
    if results["rows_per_s"]:
        speed = f"{results['rows_per_s']:,.0f} {'rows' if is_click else 'windows'}/s"
        parts.append(f"{speed}, {results['blocked_frac']:.1%} waiting for data" if is_click else speed)
    if results["skipped_rows"]:
        parts.append(f"{results['skipped_rows']:,} bad lines ignored")
    print(", ".join(parts))
    _print_clicks(results) if is_click else _print_sequences(results)
    if results["warnings"]:
        print(f"{len(results['warnings'])} warnings, see above and results.json")
    print(f"run directory: {run_dir}")


def _print_clicks(results: Mapping[str, Any]) -> None:
    found = [f"{results[split]['auroc']} on {_describe_split(split, results)}" for split in ("validation", "test")]
    print(f"AUROC {', '.join(found)}")
    if results.get("baselines"):
        _print_baselines(results)
    best = results["best"]
    if best and best["step"] < results["step"]:
        test = f", {results['test_of_best']['auroc']} on test" if results["test_of_best"] else ""
        print(f"best AUROC on validation {best['auroc']} after step {best['step']:,}{test}")


def _print_baselines(results: Mapping[str, Any]) -> None:
    """The model and what it is compared with, one below the other, on the test rows."""
    model = results["test_of_best"] if results["compared_weights"] == "best" else results["test"]
    heading = f"on test, {model['num_rows']:,} rows:"
    print(f"{heading:<27} AUROC    logloss")
    for who, metrics in {"model": model, **results["baselines"]}.items():
        print(f"  {who.replace('_', ' '):<25} {_shown(metrics['auroc'])}   {_shown(metrics['logloss'])}")
    found = results["differences"].get("logistic_regression", {}).get("auroc")
    if found:
        difference, error = found["difference"], found["standard_error"]
        print(f"AUROC of the model minus logistic regression: {difference:+.4f} (standard error {error:.4f})")


def _describe_split(split: str, results: Mapping[str, Any]) -> str:
    """Its name, and how much of it was evaluated if a limit left rows out."""
    is_whole, num_rows = results[split]["whole_split"], results[split]["num_rows"]
    return split if is_whole else f"the first {num_rows:,} rows of {split}"


def _print_sequences(results: Mapping[str, Any]) -> None:
    best = {} if results["test_of_best"] is None else {"best weights": results["test_of_best"]}
    print_rankings("test", {"last weights": results["test"], **best, **results["baselines"]})


def print_rankings(split: str, measured: Mapping[str, Mapping[str, Any]]) -> None:
    """Whatever was measured, one below the other, and the protocol that they share."""
    from recmill.ranking import is_at_ten

    first = next(iter(measured.values()))
    names = [name for name in first if is_at_ten(name)]
    part = "" if first["whole_split"] else ", a part of them"
    print(f"on {split}, {len(names)} metrics at 10 of {first['num_users']:,} users{part}:")
    for who, metrics in measured.items():
        numbers = "  ".join(f"{name} {_shown(metrics[name])}" for name in names)
        which = f"  (of the {metrics['weights']} weights)" if "weights" in metrics else ""
        print(f"  {who:<13} {numbers}{which}")
    protocol = ", ".join(f"{name} = {value}" for name, value in first["protocol"].items())
    print(f"protocol: {protocol}; {first['num_unknown_targets']:,} targets were never trained on")
    if first["num_removed_targets"]:
        print(
            f"{first['num_removed_targets']:,} targets are items that their users know, filtered and so never found: "
            "set protocol.filter_seen=false, or prepare with --repeats first"
        )


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
