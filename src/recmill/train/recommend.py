"""Lists of items for known users and for new histories, items that are known removed."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from recmill.data.prepare_events import PreparedSequences
from recmill.data.sequences import Sequences
from recmill.data.store.arrow import Lists
from recmill.errors import ConfigError, DataError
from recmill.models.baselines import Scorer
from recmill.ranking import Known, hide_known, take_top
from recmill.train.sequence_evaluate import cut_blocks


def find_history(prepared: PreparedSequences, user: str) -> NDArray[np.int64]:
    """All that a user did, the held-out events included."""
    number = prepared.vocabulary.find_user(user)
    if number is None:
        raise DataError(
            f"there is no user {user!r} among the {prepared.sequences.num_users:,} prepared ones; "
            "give what the user did with --history"
        )
    return whole_history(prepared.sequences, number, f"user {user!r}")


def whole_history(sequences: Sequences, user: int, name: str) -> NDArray[np.int64]:
    """The known items of a user."""
    length = int(sequences.offsets[user + 1] - sequences.offsets[user])
    history = sequences.history(user, length).astype(np.int64)
    if not len(history):
        raise DataError(f"{name} has no event with an item that was trained on; there is nothing to go by")
    return history


def read_history(prepared: PreparedSequences, names: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """The ids of items by their names, oldest first, and the names that no trained item has."""
    if not names:
        raise ConfigError("--history is empty; give items, oldest first, as in --history 12,7,30")
    ids = [(name, prepared.vocabulary.find_item(name)) for name in names]
    known = [number for _, number in ids if number is not None]
    strangers = [name for name, number in ids if number is None]
    if not known:
        raise DataError(
            f"none of the items {', '.join(strangers[:5])}{', …' if len(strangers) > 5 else ''} was trained on; "
            "there is nothing to go by"
        )
    return np.array(known, np.int64), strangers


def recommend(scorer: Scorer, histories: Sequence[NDArray[np.int64]], num_items: int, length: int) -> Lists:
    """The best items for each history that are not in it."""
    if length < 1:
        raise ConfigError(f"-k {length}: a list has at least one item")
    lengths = np.array([len(history) for history in histories], np.int64)
    ids = np.concatenate(histories)
    scores = scorer.score(ids, lengths)
    none = np.zeros(len(histories), np.int64)
    hide_known(scores, Known(ids, np.concatenate([[0], np.cumsum(lengths)])), none)
    places = np.empty((len(histories), min(length, num_items)), np.int64)
    take_top(scores, places)
    listed = np.take_along_axis(scores, np.maximum(places, 0), axis=1)
    return places + 1, listed


def recommend_to_all(
    scorer: Scorer, prepared: PreparedSequences, users: NDArray[np.int64], length: int, eval_batch: int
) -> Iterator[tuple[NDArray[np.int64], Lists]]:
    """Block by block: users, and their lists."""
    sequences = prepared.sequences
    for some in cut_blocks(users, sequences.num_items, eval_batch):
        histories = [whole_history(sequences, int(u), f"user {prepared.vocabulary.user_name(int(u))!r}") for u in some]
        yield some, recommend(scorer, histories, sequences.num_items, length)
