"""Layers of your own between recmill's tables and its loss.

python examples/own_model.py [DIR]
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import recmill as rm


class FactorizationMachine(nn.Module):
    """A factorization machine: a linear model of the numbers, and the products of all pairs of embeddings."""

    def __init__(self, num_dense: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_dense, 1)

    def forward(self, dense: Tensor, embeddings: Tensor) -> Tensor:
        """Numbers (rows, dense) and embeddings (rows, categories, dimension) to one logit per row."""
        total, squares = embeddings.sum(dim=1), embeddings.square().sum(dim=1)
        pairs = 0.5 * (total.square() - squares).sum(dim=1, keepdim=True)
        logits: Tensor = torch.squeeze(self.linear(dense) + pairs, 1)
        return logits


def build_layers(_config: rm.TrainConfig, schema: rm.Schema) -> nn.Module:
    """What recmill calls with the settings and the columns."""
    return FactorizationMachine(len(schema.dense_names))


def main(out: Path, rows: int = 200_000) -> None:
    """Train it as any other model, in one process or in several."""
    rm.synth("criteo", out / "data", rows=rows, days=4, seed=0, overwrite=True)
    run = rm.train("demo", data=out / "data", run=out / "run", model=build_layers, overwrite=True)
    print(run.results)
    model = rm.load(out / "run", model=build_layers)
    print(model.predict(out / "data" / "day_3")[:5])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "example_own_model"))
