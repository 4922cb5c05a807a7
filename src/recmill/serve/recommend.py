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
from recmill.models.sequence.baselines import Popularity, Scorer
from recmill.ranking import Known, hide_known, take_top
from recmill.training.sequence.evaluate import block_size, cut_blocks

_SHOWN = 60  # characters of a line in a message


class History(NamedTuple):
    """What somebody did, oldest first: ids of items, and what was ignored because no training event has it."""

    ids: NDArray[np.int64]
    unknown: list[str]


class SomeLists(NamedTuple):
    """Lists, and for each whether it is of the most popular items, because the history has no known item."""

    lists: Lists
    is_cold: NDArray[np.bool_]


def find_history(prepared: PreparedSequences, user: str) -> NDArray[np.int64]:
    """All that a user did, the held-out events included; nothing if no training event has one of the items."""
    number = prepared.catalogue.find_user(user)
    if number is None:
        raise DataError(
            f"there is no user {user!r} among the {prepared.sequences.num_users:,} prepared ones; "
            "give what the user did with --history"
        )
    return whole_history(prepared.sequences, number)


def whole_history(sequences: Sequences, user: int) -> NDArray[np.int64]:
    """The known items of a user."""
    length = int(sequences.offsets[user + 1] - sequences.offsets[user])
    return sequences.history(user, length).astype(np.int64)


def split_names(text: str) -> list[str]:
    """The items of `--history`: `12,7,30`, or a JSON list where names have commas in them."""
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--history {text[:_SHOWN]!r} is no JSON list: {error}") from None
    return _as_names(values, "--history")


def _as_names(values: object, where: str) -> list[str]:
    if not isinstance(values, list) or not all(type(value) in (int, str) for value in values):
        raise DataError(f"{where}: {repr(values)[:_SHOWN]} is no list of items, which are texts or integers")
    return [str(value) for value in values]


def read_history(prepared: PreparedSequences, names: Sequence[str]) -> History:
    """The ids of items by their names, oldest first; none if no training event has one of them."""
    if not names:
        return History(np.empty(0, np.int64), [])
    found = prepared.catalogue.find_items(names)
    unknown = [name for name, number in zip(names, found.tolist(), strict=True) if not number]
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


def recommend_or_popular(
    scorer: Scorer, prepared: PreparedSequences, histories: Sequence[NDArray[np.int64]], length: int
) -> SomeLists:
    """The best items for each history; the most popular ones for those that have no known item to go by."""
    num_items = prepared.sequences.num_items
    is_cold = np.array([not len(history) for history in histories], bool)
    places = np.zeros((len(histories), min(length, num_items)), np.int64)
    scores = np.zeros(places.shape, np.float32)
    for rows, chosen in ((~is_cold, scorer), (is_cold, Popularity(prepared.item_counts))):
        some = [histories[row] for row in np.flatnonzero(rows).tolist()]
        if some:
            places[rows], scores[rows] = recommend(chosen, some, num_items, length)
    return SomeLists((places, scores), is_cold)


def recommend_to_all(
    scorer: Scorer, prepared: PreparedSequences, length: int, eval_batch: int
) -> Iterator[tuple[NDArray[np.int64], SomeLists]]:
    """Block by block: all users, and their lists."""
    sequences = prepared.sequences
    for some in cut_blocks(np.arange(sequences.num_users), sequences.num_items, eval_batch):
        histories = [whole_history(sequences, int(user)) for user in some]
        yield some, recommend_or_popular(scorer, prepared, histories, length)


def recommend_to_new(
    scorer: Scorer, prepared: PreparedSequences, path: Path, length: int, eval_batch: int
) -> Iterator[tuple[list[str], SomeLists]]:
    """Block by block: the users of a file of histories, and their lists."""
    num_items, asked = prepared.sequences.num_items, read_asked(path)
    while block := list(islice(asked, block_size(num_items, eval_batch))):
        ids_of_all = prepared.catalogue.find_items([name for _, names in block for name in names])
        found = np.split(ids_of_all, np.cumsum([len(names) for _, names in block])[:-1])
        histories = [ids[ids > 0] for ids in found]
        yield [user for user, _ in block], recommend_or_popular(scorer, prepared, histories, length)


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
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: {shown} is no JSON: {error}") from None
    if not isinstance(asked, dict) or asked.keys() != {"user", "history"} or type(asked["user"]) not in (int, str):
        raise DataError(f'{where}: {shown} is not of the form {{"user": "anna", "history": [12, 7]}}')
    return str(asked["user"]), _as_names(asked["history"], where)
