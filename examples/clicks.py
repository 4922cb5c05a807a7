"""Clicks from Python: a log, a model, its metrics, predictions.

python examples/clicks.py [DIR]
"""

import sys
from pathlib import Path

import recmill as rm


def main(out: Path, rows: int = 200_000) -> None:
    """Train on a synthetic log, look at the curve, predict the last day."""
    rm.synth("criteo", out / "data", rows=rows, days=4, seed=0, overwrite=True)
    run = rm.train(
        "demo",
        data=out / "data",
        run=out / "run",
        overrides={"dense.lr": 0.02, "batch_size": 512, "cadence.log_every_steps": 20},
        overwrite=True,
    )
    print(run.results)

    curve = run.metrics().filter(kind="train").select("step", "loss", "rows_per_s")  # ready to plot
    print(curve.tail(3))

    model = run.load()
    probabilities = model.predict(out / "data" / "day_3")
    print(f"mean prediction of the last day: {probabilities.mean():.4f}")
    print(f"vectors of column cat_3: {model.table('cat_3').shape}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "example_clicks"))
