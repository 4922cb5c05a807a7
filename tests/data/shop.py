"""A shop's log as a person would have it: a CSV with a header."""

from pathlib import Path

import numpy as np


def write_shop(path: Path, rows: int = 600) -> None:
    rng = np.random.default_rng(5)
    lines = ["order,clicked,price,visits,city"]
    for i in range(rows):
        city = ["Rome", "Oslo", "Lima", "Bonn"][rng.integers(4)]
        clicked = int(rng.random() < (0.5 if city == "Rome" else 0.2))
        lines.append(f"o{i},{clicked},{rng.random() * 9:.2f},{rng.integers(1, 300)},{city}")
    path.write_text("\n".join(lines) + "\n")
