"""The rival of `recmill bench events`: Goodreads' CSV to sequences the way one writes it in pandas."""

from pathlib import Path
from typing import Any

MIN_LENGTH = 20


def prepare_with_pandas(csv_path: Path, out_dir: Path) -> Any:
    """Read, filter users by length, number users and items, list by user, hold out the last two, write Parquet."""
    import pandas as pd

    out_dir.mkdir(parents=True, exist_ok=True)
    frame = pd.read_csv(csv_path)
    lengths = frame.groupby("user_id")["book_id"].transform("size")
    frame = frame[lengths >= MIN_LENGTH]
    user_numbers = {user: number for number, user in enumerate(sorted(frame["user_id"].unique()))}
    frame = frame.assign(user=frame["user_id"].map(user_numbers))
    sequences = frame.groupby("user")["book_id"].agg(list)
    train = sequences.map(lambda items: items[:-2])
    item_numbers = {item: number for number, item in enumerate(sorted({i for items in train for i in items}), start=1)}
    numbered = pd.DataFrame(
        {
            "user": sequences.index,
            "train": train.map(lambda items: [item_numbers[item] for item in items]),
            "validation": sequences.map(lambda items: item_numbers.get(items[-2], -1)),
            "test": sequences.map(lambda items: item_numbers.get(items[-1], -1)),
        }
    )
    numbered.to_parquet(out_dir / "sequences.parquet")
    return numbered
