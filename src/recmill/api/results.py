"""What a run or an evaluation has measured, typed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recmill.observe.html import html_table
from recmill.ranking import is_at_ten


class SplitResult(Mapping[str, Any]):
    """The metrics of a split, by name as `results.json` has them; those everybody asks for are attributes too."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def auroc(self) -> float | None:
        """Of click models: the area under the ROC curve; None if all labels are the same."""
        return self._values.get("auroc")

    @property
    def logloss(self) -> float | None:
        """Of click models: the mean cross entropy."""
        return self._values.get("logloss")

    @property
    def calibration(self) -> float | None:
        """Of click models: the mean prediction over the mean label."""
        return self._values.get("calibration")

    @property
    def num_rows(self) -> int:
        """How many rows, or users, were evaluated."""
        return int(self._values.get("num_rows", self._values.get("num_users", 0)))

    def ndcg(self, k: int = 10) -> float | None:
        """Of sequence models: NDCG of lists of k items, under the protocol of the run."""
        return self._at("ndcg", k)

    def hit_rate(self, k: int = 10) -> float | None:
        """Of sequence models: the share of users whose next item is in a list of k."""
        return self._at("hr", k)

    def _at(self, metric: str, k: int) -> float | None:
        name = next((name for name in self._values if name.split("_")[0] == f"{metric}@{k}"), None)
        return None if name is None else self._values[name]

    @property
    def headline(self) -> dict[str, float | None]:
        """The metrics that a table shows: AUROC, logloss, … of clicks, those at 10 of sequences."""
        if "auroc" in self._values:
            names = ("auroc", "logloss", "normalised_entropy", "calibration", "accuracy")
            return {name: self._values[name] for name in names}
        return {name: value for name, value in self._values.items() if is_at_ten(name)}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value:.5f}" for name, value in self.headline.items() if value is not None)
        return f"SplitResult({shown}, num_rows={self.num_rows:,})"

    def _repr_html_(self) -> str:
        return html_table(("metric", "value"), self.headline.items())


@dataclass(frozen=True)
class Results:
    """What `results.json` of a finished run holds."""

    plain: dict[str, Any]

    @property
    def test(self) -> SplitResult:
        """Of the last weights."""
        return SplitResult(self.plain["test"])

    @property
    def validation(self) -> SplitResult:
        """Of the last weights."""
        return SplitResult(self.plain["validation"])

    @property
    def test_of_best(self) -> SplitResult | None:
        """Of the weights with the best validation score; None if the run did not keep them."""
        values = self.plain.get("test_of_best")
        return None if values is None else SplitResult(values)

    @property
    def baselines(self) -> dict[str, SplitResult]:
        """What simple predictors score on the test split, by name."""
        return {name: SplitResult(values) for name, values in self.plain.get("baselines", {}).items()}

    @property
    def step(self) -> int:
        """How many steps were trained."""
        return int(self.plain["step"])

    @property
    def num_rows(self) -> int:
        """How many rows, or windows, were trained on."""
        return int(self.plain["rows"])

    @property
    def rows_per_s(self) -> float | None:
        """Rows, or windows, of a second of training."""
        speed: float | None = self.plain["rows_per_s"]
        return speed

    @property
    def warnings(self) -> list[str]:
        """What is suspicious about the run, each with its likely cause."""
        return list(self.plain.get("warnings", []))

    @property
    def ended_by(self) -> str:
        """The limit that ended the run."""
        return str(self.plain["ended_by"])

    def __repr__(self) -> str:
        return f"Results(step={self.step:,}, test={self.test!r})"

    def rows(self) -> dict[str, SplitResult]:
        """Everything that was measured on the test split, one below the other."""
        best = {} if self.test_of_best is None else {"best weights": self.test_of_best}
        return {"last weights": self.test, **best, **self.baselines}

    def _repr_html_(self) -> str:
        names = list(self.test.headline)
        cells = ([who, *(result.get(name) for name in names)] for who, result in self.rows().items())
        return html_table(("test", *names), cells, f"{self.step:,} steps, {self.num_rows:,} rows")
