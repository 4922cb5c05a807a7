"""A trained click model that predicts new rows."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray
from torch import nn

from recmill.data.prepared.manifest import identity_of_rows
from recmill.errors import ConfigError, DataError, RunError
from recmill.observe.console import ProgressLine, quiet_line
from recmill.serve.calibrated import read_calibration
from recmill.serve.labelled import RowCollector, labelled_chunks
from recmill.serve.predict import NewRowsReader, Scored, probabilities_of, read_prepared, score_chunks
from recmill.serve.rows import Rows, opened_rows, prepared_dir
from recmill.serve.table_file import (
    predictions_schema,
    predictions_table,
    refuse_own_names,
    refuse_table_path,
    table_writer,
)
from recmill.serve.weights import FoundWeights
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import BadRowPolicy, RowsPart
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import refuse_other_rows
from recmill.training.raw_files import identity_of_logs
from recmill.training.vocabulary import identity_of_vocabulary

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers


@dataclass(frozen=True)
class WrittenPredictions:
    """How many rows were read, and how many of them have no prediction because they are bad."""

    num_rows: int
    num_bad: int


def _identity_of_own_rows(config: TrainConfig) -> str:
    return identity_of_rows(Path(config.data.dir)) or identity_of_logs(config.data)


class ClickModel:
    """Predicts the probability of a click."""

    def __init__(
        self,
        config: TrainConfig,
        weights: FoundWeights,
        build_layers: "BuildLayers | None" = None,
        *,
        is_own_data: bool = False,
    ) -> None:
        self.config, self.weights = config, weights
        vocabulary = identity_of_vocabulary(config)  # rows of the tables stand for its values, and no others
        rows = _identity_of_own_rows(config) if is_own_data else ""
        self._state = replace(assemble(config, build_layers), data_hash=f"{rows}/{vocabulary}")
        read_model(weights.directory, self._state)
        self._state.model.eval()
        self.calibrator = read_calibration(weights)

    @property
    def torch(self) -> nn.Module:
        """The layers: dense features (B, N) and embeddings (B, F, D) to logits (B)."""
        return self._state.model

    def table(self, name: str) -> NDArray[np.float32]:
        """The embeddings of a category column (rows, dimension)."""
        names = [spec.name for spec in self._state.tables.specs]
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise ConfigError(f"there is no table {name!r}; {hint}")
        return np.array(self._state.tables.weights(name))

    def predict(self, rows: Rows, *, bad_rows: BadRowPolicy = "fail") -> NDArray[np.float64]:
        """The probability of a click for every row, in the order of the input; NaN for a bad row that is skipped.

        `rows` are a file or several (text, .gz, .zst, Parquet), a directory of logs or of prepared rows, a polars or
        pandas frame, a dict of columns, or lines of text. They may have a label, which is not read.
        """
        return self.probabilities_of(self.logits(rows, bad_rows=bad_rows))

    def probabilities_of(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of a click, by the calibration of the run if it has one."""
        return probabilities_of(logits) if self.calibrator is None else self.calibrator.probabilities(logits)

    def logits(self, rows: Rows, *, bad_rows: BadRowPolicy = "fail") -> NDArray[np.float32]:
        """The same before the sigmoid and without calibration, to the last bit what an evaluation works out."""
        with self._scored(rows, bad_rows, ()) as scored:
            return np.concatenate([np.empty(0, np.float32), *(each.logits for each in scored)])

    def score_labelled(
        self, rows: Rows, part: RowsPart = "all", columns: Sequence[str] = (), *, keeps_rows: bool, max_rows: int = 0
    ) -> RowCollector:
        """Score rows that have labels: all of them, or a split of the data that the settings name; 0 is no limit."""
        has_weight = self.config.data.schema_of_rows.has_weight
        collector = RowCollector(
            columns, self.calibrator, has_weight=has_weight, keeps_rows=keeps_rows, max_rows=max_rows
        )
        with labelled_chunks(self.config, rows, part, columns) as chunks:
            collector.take(score_chunks(self._state, chunks))
        return collector

    def recommend(self, history: object = None, *, user: object = None, k: int = 20) -> NoReturn:
        """A click model has no lists of items."""
        del history, user, k
        raise RunError(f"{self!r} predicts clicks and ranks no items; use predict")

    def write_predictions(
        self,
        rows: Rows,
        out: str | Path,
        *,
        id_columns: Sequence[str] = (),
        bad_rows: BadRowPolicy = "fail",
        line: ProgressLine | None = None,
    ) -> WrittenPredictions:
        """Write a Parquet or CSV file with a row for every row of the input: its number, some of its columns,
        probability and logit; where bad rows are skipped, also the error of those that have no prediction.
        """
        path, num_rows, num_bad = Path(out), 0, 0
        refuse_table_path(path)
        refuse_own_names(id_columns)
        with self._scored(rows, bad_rows, id_columns) as scored, line or quiet_line() as shown:
            first = next(scored, None)
            schema = predictions_schema(first, id_columns, with_errors=bad_rows == "skip")
            with table_writer(path, schema) as writer:
                each = first
                while each is not None:
                    probabilities = self.probabilities_of(each.logits)
                    writer.write_table(predictions_table(each, probabilities, schema, num_rows + 1))
                    num_rows, num_bad = num_rows + len(each.logits), num_bad + len(each.bad)
                    if shown.wants_update:
                        shown.update(f"{num_rows:,} rows predicted")
                    each = next(scored, None)
        return WrittenPredictions(num_rows, num_bad)

    @contextmanager
    def _scored(self, rows: Rows, bad_rows: BadRowPolicy, carry: Sequence[str]) -> Iterator[Iterator[Scored]]:
        if (directory := prepared_dir(rows)) is not None:
            refuse_other_rows(self.config, directory)
            if carry:
                raise DataError(
                    f"{rows} holds prepared rows, which have no column {carry[0]!r} to carry along any more"
                )
            yield score_chunks(self._state, read_prepared(directory, self.config))
            return
        if bad_rows not in ("fail", "skip"):
            raise ConfigError(f"bad_rows = {bad_rows!r} is rejected: choose fail or skip")
        reader = NewRowsReader(self.config, bad_rows, tuple(carry), threads=len(os.sched_getaffinity(0)))
        with opened_rows(rows, self.config.data.schema_of_rows) as files:
            yield score_chunks(self._state, reader.read_files(files))

    def __repr__(self) -> str:
        return f"ClickModel({self.config.model.kind}, {self.weights.describe()})"
