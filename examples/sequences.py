"""What will a user do next: events, a model, its rivals, recommendations.

python examples/sequences.py [DIR]
"""

import sys
from pathlib import Path

import recmill as rm


def main(out: Path, users: int = 2_000) -> None:
    """Train SASRec on synthetic events, compare it with its baselines, recommend."""
    rm.synth("interactions", out / "world", users=users, items=200, seed=0, overwrite=True)
    rm.prepare_events(out / "world" / "interactions.csv", out=out / "sequences", overwrite=True)
    run = rm.train(
        "sasrec",
        data=out / "sequences",
        run=out / "run",
        overrides={"epochs": 5, "model.embedding_dim": 32, "model.dropout": 0.1},
        overwrite=True,
    )
    for name, result in run.results.rows().items():
        print(f"{name:<13} NDCG@10 {result.ndcg(10):.4f}  hit rate@10 {result.hit_rate(10):.4f}")

    model = run.load()
    print(model.recommend([3, 7], k=5).items)
    print(model.recommend(user=12, k=5).items)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "example_sequences"))
