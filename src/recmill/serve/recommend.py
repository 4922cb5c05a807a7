"""Lists of items for known users and for new histories, items that are known removed."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.events.arrow import Lists
from recmill.data.events.prepare import PreparedSequences
from recmill.data.events.windows import Sequences
from recmill.errors import ConfigError, DataError
from recmill.models.sequence.baselines import Scorer
from recmill.ranking import Known, hide_known, take_top
from recmill.training.sequence.evaluate import block_size, cut_blocks

_SHOWN = 60  # characters of a line in a message


class History(NamedTuple):
    """What somebody did, oldest first: ids of items, and what was ignored because no training event has it."""

    ids: NDArray[np.int64]
    unknown: list[str]


def find_history(prepared: PreparedSequences, user: str) -> NDArray[np.int64]:
    """All that a user did, the held-out events included."""
    number = prepared.catalogue.find_user(user)
    if number is None:
        raise DataError(
            f"there is no user {user!r} among the {prepared.sequences.num_users:,} prepared ones; "
            "give what the user did with --history"
        )
    history = whole_history(prepared.sequences, number)
    if not len(history):
        raise DataError(f"user {user!r} has no event with an item that was trained on; there is nothing to go by")
    return history


def whole_history(sequences: Sequences, user: int) -> NDArray[np.int64]:
    """The known items of a user."""
    length = int(sequences.offsets[user + 1] - sequences.offsets[user])
    return sequences.history(user, length).astype(np.int64)


def users_with_history(sequences: Sequences) -> NDArray[np.int64]:
    """The users who have a known item."""
    lengths = np.diff(sequences.offsets)
    return np.flatnonzero([len(sequences.history(user, int(n))) > 0 for user, n in enumerate(lengths)])


def split_names(text: str) -> list[str]:
    """The items of `--history`: `12,7,30`, or a JSON list where names have commas in them."""
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--history {text[:_SHOWN]!r} is no JSON list: {error}") from None
    return _as_names(values, "--history")


def _as_names(values: object, where: str) -> list[str]:
    if not isinstance(values, list) or not all(type(value) in (int, str) for value in values):
        raise DataError(f"{where}: {repr(values)[:_SHOWN]} is no list of items, which are texts or integers")
    return [str(value) for value in values]


def read_history(prepared: PreparedSequences, names: Sequence[str]) -> History:
    """The ids of items by their names, oldest first."""
    if not names:
        raise ConfigError("--history is empty; give items, oldest first, as in --history 12,7,30")
    found = prepared.catalogue.find_items(names)
    unknown = [name for name, number in zip(names, found.tolist(), strict=True) if not number]
    if len(unknown) == len(names):
        raise DataError(
            f"none of the items {', '.join(unknown[:5])}{', …' if len(unknown) > 5 else ''} was trained on; "
            "there is nothing to go by (items are separated by commas)"
        )
    return History(found[found > 0], unknown)


def recommend(scorer: Scorer, histories: Sequence[NDArray[np.int64]], num_items: int, length: int) -> Lists:
    """The best items for each history that are not in it."""
    lengths = np.array([len(history) for history in histories], np.int64)
    ids = np.concatenate(histories)
    scores = scorer.score(ids, lengths)
    hide_known(scores, Known.of(ids, lengths))
    places = np.empty((len(histories), min(length, num_items)), np.int64)
    take_top(scores, places)
    listed = np.take_along_axis(scores, np.maximum(places, 0), axis=1)
    return places + 1, listed


def recommend_to_all(
    scorer: Scorer, prepared: PreparedSequences, users: NDArray[np.int64], length: int, eval_batch: int
) -> Iterator[tuple[NDArray[np.int64], Lists]]:
    """Block by block: users, of whom each has a known item, and their lists."""
    sequences = prepared.sequences
    for some in cut_blocks(users, sequences.num_items, eval_batch):
        histories = [whole_history(sequences, int(user)) for user in some]
        yield some, recommend(scorer, histories, sequences.num_items, length)


def recommend_to_new(
    scorer: Scorer, prepared: PreparedSequences, path: Path, length: int, eval_batch: int
) -> Iterator[tuple[list[str], Lists]]:
    """Block by block: the users of a file of histories, without those who have no known item, and their lists."""
    num_items, asked = prepared.sequences.num_items, read_asked(path)
    while block := list(islice(asked, block_size(num_items, eval_batch))):
        ids_of_all = prepared.catalogue.find_items([name for _, names in block for name in names])
        found = np.split(ids_of_all, np.cumsum([len(names) for _, names in block])[:-1])
        known = [(user, ids[ids > 0]) for (user, _), ids in zip(block, found, strict=True) if (ids > 0).any()]
        if known:
            users, histories = zip(*known, strict=True)
            yield list(users), recommend(scorer, histories, num_items, length)


def read_asked(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The users and items of a file with lines of `{"user": "anna", "history": [12, 7]}`, oldest item first."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if raw.strip():
                yield _read_asked(raw, f"{path}:{number}")


def _read_asked(raw: bytes, where: str) -> tuple[str, list[str]]:
    shown = repr(raw[:_SHOWN].decode(errors="backslashreplace").rstrip())
    try:
        asked = json.loads(raw)
        json.dumps(asked, ensure_ascii=False).encode()  # JSON may name halves of characters, which no text can hold
    except ValueError as error:
        raise DataError(f"{where}: {shown} is no JSON: {error}") from None
    if not isinstance(asked, dict) or asked.keys() != {"user", "history"} or type(asked["user"]) not in (int, str):
        raise DataError(f'{where}: {shown} is not of the form {{"user": "anna", "history": [12, 7]}}')
    return str(asked["user"]), _as_names(asked["history"], where)
