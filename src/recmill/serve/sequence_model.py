"""A trained sequence model that lists items for users and histories."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from recmill.data.events.arrow import add_titles
from recmill.errors import ConfigError, DataError, RunError
from recmill.observe.html import html_table
from recmill.serve import recommend
from recmill.serve.table_file import refuse_table_path, table_writer
from recmill.serve.titles import read_titles
from recmill.serve.weights import FoundWeights
from recmill.settings.families import AnyConfig
from recmill.training.job import trained_task
from recmill.training.sequence.task import SequenceTask


@dataclass(frozen=True)
class Recommended:
    """A list for one user: items as the files call them, best first, and their scores."""

    items: list[int | str]
    scores: list[float]
    unknown: list[str]  # items of the history that were never trained on
    history_length: int
    source: str = "model"  # or popularity: the history has no item that was trained on
    titles: list[str | None] | None = None  # of the items, if a file of titles was given

    def _repr_html_(self) -> str:
        if self.titles is not None:
            rows = zip(self.items, self.scores, [title or "" for title in self.titles], strict=True)
            return html_table(("item", "score", "title"), rows)
        return html_table(("item", "score"), zip(self.items, self.scores, strict=True))


@dataclass(frozen=True)
class WrittenLists:
    """How many users have a list in a file, how many of the lists are of popular items, how long they are at most."""

    num_users: int
    num_popular: int
    length: int


def _refuse_no_list(length: int) -> None:
    if length < 1:
        raise ConfigError(f"-k {length}: a list has at least one item")


class SequenceModel:
    """Ranks items by what came before."""

    def __init__(self, config: AnyConfig, weights: FoundWeights, *, is_own_data: bool = True) -> None:
        self.config, self.weights = config, weights
        with trained_task(
            config, weights.directory, is_own_data=is_own_data
        ) as task:  # the sequences are mapped, and stay so
            assert isinstance(task, SequenceTask)
            self._task = task

    @property
    def torch(self) -> nn.Module:
        """The layers, with their item vectors if those are weights like others."""
        return self._task.state.model

    @property
    def num_items(self) -> int:
        """How many items the catalogue has."""
        return int(self._task.prepared.sequences.num_items)

    def table(self, name: str = "item") -> "np.ndarray[Any, np.dtype[np.float32]]":
        """The item vectors (items, dimension), in the order of `items`."""
        if name != "item":
            raise ConfigError(f"there is no table {name!r}; a sequence model has one, item")
        with self._task.ready_to_score():
            with torch.no_grad():
                vectors = self._task.state.model.look_up(torch.arange(1, self.num_items + 1))
            return np.array(vectors.numpy())

    @property
    def items(self) -> list[int | str]:
        """All items as the files call them, in the order of the rows of `table`."""
        return self._task.prepared.catalogue.item_names(range(1, self.num_items + 1))

    def predict(self, rows: object, *, bad_rows: str = "fail") -> NoReturn:
        """A sequence model predicts no clicks."""
        del rows, bad_rows
        raise RunError(f"{self!r} ranks items and predicts no clicks; use recommend")

    def recommend(
        self,
        history: Iterable[int | str] | None = None,
        *,
        user: int | str | None = None,
        k: int = 20,
        titles: str | Path | None = None,
    ) -> Recommended:
        """The k best items for a history, oldest first, or for a user of the prepared sequences.

        Without an item that was trained on they are the most popular ones, and `source` says so. `titles` is a file of
        items and their titles, such as movies.dat.
        """
        if (history is None) == (user is None):
            raise ConfigError("recommend takes a history or a user, one of them")
        _refuse_no_list(k)
        prepared, unknown, title_of = self._task.prepared, list[str](), self._read_titles(titles)
        if history is None:
            ids = recommend.find_history(prepared, str(user))
        else:
            given = recommend.split_names(history) if isinstance(history, str) else [str(each) for each in history]
            ids, unknown = recommend.read_history(prepared, given)
        with self._task.ready_to_score():
            (places, scores), is_cold = recommend.recommend_or_popular(self._task.state.model, prepared, [ids], k)
        listed = places[0][places[0] > 0].tolist()
        items = prepared.catalogue.item_names(listed)
        source = "popularity" if is_cold[0] else "model"
        listed_titles = None if title_of is None else [title_of.get(str(item)) for item in items]
        scores_of_items = [float(score) for score in scores[0][: len(items)]]
        return Recommended(items, scores_of_items, unknown, len(ids), source, listed_titles)

    def _read_titles(self, path: str | Path | None) -> dict[str, str] | None:
        """The titles of a file, which has some of the items."""
        if path is None:
            return None
        titles = read_titles(Path(path))
        if not self._task.prepared.catalogue.find_items(list(titles)).any():
            raise DataError(
                f"--titles {path} has none of the {self.num_items:,} items; its first column holds the items as the "
                "files of events call them"
            )
        return titles

    def write_lists(
        self, out: str | Path, k: int = 20, *, histories: str | Path | None = None, titles: str | Path | None = None
    ) -> WrittenLists:
        """Write the lists of all users, or of a file of histories, to a Parquet or CSV file."""
        path, prepared, state = Path(out), self._task.prepared, self._task.state
        refuse_table_path(path)
        _refuse_no_list(k)
        title_of = self._read_titles(titles)
        eval_batch = self._task.config.data.eval_batch
        blocks: Any
        if histories is not None:
            for _ in recommend.read_asked(Path(histories)):
                pass  # a bad line is named before all else
            blocks = recommend.recommend_to_new(state.model, prepared, Path(histories), k, eval_batch)
        else:
            blocks = recommend.recommend_to_all(state.model, prepared, k, eval_batch)
        num_users, num_popular, catalogue = 0, 0, prepared.catalogue
        schema = catalogue.lists_schema(are_new=histories is not None, has_titles=title_of is not None)
        with self._task.ready_to_score(), table_writer(path, schema) as writer:
            for users_of_block, (lists, is_cold) in blocks:
                num_users, num_popular = num_users + len(users_of_block), num_popular + int(is_cold.sum())
                table = catalogue.lists_table(users_of_block, lists, is_cold)
                writer.write_table(table if title_of is None else add_titles(table, title_of))
        return WrittenLists(num_users, num_popular, min(k, self.num_items))

    def __repr__(self) -> str:
        return f"SequenceModel({self.config.model.kind}, {self.num_items:,} items, {self.weights.describe()})"
