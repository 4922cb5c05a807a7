"""What an audit found, as plain values, and which findings forbid training on the data."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from recmill.data.audit.profile import CategoryProfile, DenseProfile
from recmill.data.audit.side_counts import ListProfile
from recmill.data.audit.tally import HashTally
from recmill.data.logs.bad_rows import FEW_LINES
from recmill.errors import ConfigError
from recmill.observe.html import html_table
from recmill.settings.data import MAX_BAD_FRAC, BadRowPolicy, SplitName

HASHES_SHOWN = "xxh64:… is the hash of a string whose text is not in the parts of the files that were searched for it"
_SURE = 4  # standard errors
LEAK_AUROC = 0.95  # no honest column alone tells clicks from others so well


@dataclass(frozen=True)
class Limits:
    """The shares: of rows that suggested tables cover, of test rows that training may have, of bad lines if skipped."""

    coverage_frac: float = 0.99
    max_overlap_frac: float = 0.01
    bad_rows: BadRowPolicy = "fail"  # as training does
    max_bad_frac: float = MAX_BAD_FRAC

    def __post_init__(self) -> None:
        if not 0 < self.coverage_frac <= 1:
            raise ConfigError(f"--coverage {self.coverage_frac} is rejected: it is above 0 and at most 1")
        if not 0 <= self.max_overlap_frac <= 1:
            raise ConfigError(f"--max-overlap {self.max_overlap_frac} is rejected: it is 0 to 1")
        if not 0 <= self.max_bad_frac <= 1:
            raise ConfigError(f"--max-bad-frac {self.max_bad_frac} is rejected: it is 0 to 1")


@dataclass(frozen=True)
class SplitFacts:
    """How many rows a split has."""

    num_rows: int = 0
    num_clicks: int = 0

    @property
    def click_rate(self) -> float | None:
        """The mean label."""
        return self.num_clicks / self.num_rows if self.num_rows else None


@dataclass(frozen=True)
class BadLines:
    """The lines that are no rows: how many, and what is wrong with the first."""

    count: int = 0
    first: tuple[str, ...] = ()
    gave_up: bool = False  # there was nothing else, and the rest was not read
    num_labels: int = 0  # of those in training files, how many have a label that can be read
    num_clicks: int = 0  # and is positive


@dataclass(frozen=True)
class RowFacts:
    """Rows that occur more than once, by their 64-bit hashes."""

    method: str  # "exact", or "sample" of the distinct rows
    error_frac: float  # of the shares, about one standard error
    duplicate_rows: int  # training rows that equal an earlier one, label included
    conflicting_rows: int  # training rows whose features also occur with the other label
    overlap_rows: int  # test rows whose features occur in training
    overlap_rows_with_label: int  # and with the same label
    overlap_frac: float


@dataclass(frozen=True)
class PreparedFacts:
    """Of prepared rows: what their manifest says, and what they hold that no preparation writes."""

    preset: str
    table_rows: tuple[int, ...]
    rows: dict[SplitName, int]  # validation and test rows together are what is held out from training
    damage: tuple[str, ...]


@dataclass(frozen=True)
class AuditReport:
    """All findings."""

    schema_name: str
    has_label: bool
    limits: Limits
    train: SplitFacts
    test: SplitFacts
    bad: BadLines
    rows: RowFacts
    dense: tuple[DenseProfile, ...]
    categories: tuple[CategoryProfile, ...]
    duplicate_columns: tuple[tuple[str, ...], ...]  # names of columns that are equal in every training row
    prepared: PreparedFacts | None = None
    empty_files: tuple[str, ...] = ()
    lists: tuple[ListProfile, ...] = ()  # columns of several values
    training_bad_rows: BadRowPolicy | None = None  # as the settings of training say, if they are known
    remarks: tuple[str, ...] = ()  # what was assumed

    @property
    def columns(self) -> tuple[DenseProfile | CategoryProfile, ...]:
        """The profiles of all columns."""
        return (*self.dense, *self.categories)

    @property
    def constant_columns(self) -> tuple[str, ...]:
        """Columns that say nothing."""
        if self.train.num_rows == 0:
            return ()
        return tuple(column.name for column in self.columns if column.is_constant)

    @property
    def leak_suspects(self) -> dict[str, float]:
        """Columns that alone give the label away, and their AUROC."""
        aurocs = {column.name: column.auroc for column in self.columns}
        return {name: auroc for name, auroc in aurocs.items() if auroc is not None and auroc > LEAK_AUROC}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why training on this data would be wrong; empty if it would not."""
        train, rows, limits = self.train, self.rows, self.limits
        if train.num_rows == 0:
            which = "the first" if self.bad.gave_up else "all"
            all_bad = f"{which} {self.bad.count:,} lines are bad; is {self.schema_name} the right schema?"
            return (all_bad if self.bad.count and not self.test.num_rows else "there are no training rows",)
        if not self.has_label:
            return (f"schema {self.schema_name} has no label: its rows can be scored, not trained on",)
        found = list(self.prepared.damage) if self.prepared else []
        found += self._bad_reasons()
        if train.num_clicks in (0, train.num_rows):
            label = int(train.num_clicks > 0)
            other = self.bad.num_labels - self.bad.num_clicks if label else self.bad.num_clicks
            lost = f"; {other:,} bad lines have the other label: fix them or the schema" if other else ""
            found.append(
                f"all {train.num_rows:,} training rows have the label {label}; there is nothing to learn{lost}"
            )
        elif self.limits.bad_rows == "skip" and self._are_bad_lines_biased:
            found.append(self._tell_bias("ignoring them changes what is learnt: fix them or the schema"))
        if rows.overlap_frac > limits.max_overlap_frac:
            found.append(
                f"{rows.overlap_frac:.2%} of the test rows have the features of a training row, more than "
                f"{limits.max_overlap_frac:.2%} (--max-overlap); a test on them measures memory"
            )
        found += [
            f"{name} alone predicts the label with AUROC {auroc:.4f}, above {LEAK_AUROC}: it may have been written "
            "after the click; leave it out, or make sure of it"
            for name, auroc in self.leak_suspects.items()
        ]
        return tuple(found)

    def _bad_reasons(self) -> list[str]:
        """What training would say of the bad lines."""
        count, limits = self.bad.count, self.limits
        num_lines = self.train.num_rows + self.test.num_rows + count
        if count and limits.bad_rows == "fail":
            return [
                f"{count:,} bad lines, and training stops at the first of them: fix them, or pass --bad-rows skip here "
                "and there"
            ]
        if num_lines >= FEW_LINES and count > limits.max_bad_frac * num_lines:
            return [
                f"{count:,} of {num_lines:,} lines are bad ({count / num_lines:.2%}), more than training ignores: fix "
                f"the files or the schema, or set data.max_bad_frac ({limits.max_bad_frac:g}; here --max-bad-frac)"
            ]
        return []

    @property
    def _are_bad_lines_biased(self) -> bool:
        """Whether bad lines have one label at least twice as often as rows have it, and not by chance."""
        count, clicks, rate = self.bad.num_labels, self.bad.num_clicks, self.train.click_rate
        if not count or rate in (None, 0.0, 1.0):
            return False
        assert rate is not None
        is_chance = abs(clicks - count * rate) < _SURE * math.sqrt(count * rate * (1 - rate)) + 1
        return not is_chance and (clicks / count >= 2 * rate or 1 - clicks / count >= 2 * (1 - rate))

    def _tell_bias(self, ending: str) -> str:
        share = self.bad.num_clicks / self.bad.num_labels
        return (
            f"{share:.1%} of the {self.bad.num_labels:,} bad lines whose label can be read are positive, and "
            f"{self.train.click_rate:.1%} of the training rows; {ending}"
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """Everything noteworthy, what forbids training on the data first."""
        return (*self.reasons, *self.notes)

    def _repr_html_(self) -> str:
        rows = [("wrong", reason) for reason in self.reasons] + [("note", note) for note in self.notes]
        return html_table(("", "finding"), rows or [("", "nothing found that forbids training on this")])

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing and does not forbid training."""
        train, test, rows = self.train, self.test, self.rows
        about = "" if rows.method == "exact" else "about "
        num_lines = train.num_rows + test.num_rows + self.bad.count
        ignored = f" of {num_lines:,}, which training ignores" if self.limits.bad_rows == "skip" else ""
        lines = {
            **dict.fromkeys(self.remarks, True),
            f"{self.bad.count:,} bad lines{ignored}": self.bad.count > 0,
            **dict.fromkeys(self._notes_of_policy(), True),
            **{f"{path} is empty: it has no rows": True for path in self.empty_files},
            **{each.describe(): each.rows_cut > 0 for each in self.lists},
            f"constant in training: {', '.join(self.constant_columns)}": bool(self.constant_columns),
            **{f"equal in every training row: {', '.join(names)}": True for names in self.duplicate_columns},
            f"{about}{rows.duplicate_rows:,} training rows repeat an earlier one": rows.duplicate_rows > 0,
            f"{about}{rows.conflicting_rows:,} training rows also occur with the other label": (
                rows.conflicting_rows > 0
            ),
            f"{about}{rows.overlap_rows:,} test rows have the features of a training row, "
            f"{about}{rows.overlap_rows_with_label:,} its label too": rows.overlap_rows > 0,
            HASHES_SHOWN: any(top.is_hash for column in self.categories for top in column.top_values),
            "there are no test rows": test.num_rows == 0 and train.num_rows > 0,
            "all test rows have one label; their AUROC is not defined": (
                self.has_label and test.num_rows > 0 and test.num_clicks in (0, test.num_rows)
            ),
        }
        return tuple(line for line, applies in lines.items() if applies)

    def _notes_of_policy(self) -> Iterator[str]:
        """Where this audit and training differ about bad lines, and what fixing them would bring back."""
        here, there = self.limits.bad_rows, self.training_bad_rows
        if there is not None and there != here:
            yield (
                f"this audit takes --bad-rows {here}, and training would take data.bad_rows = {there}; "
                f"pass --bad-rows {here} to training too, or --bad-rows {there} here"
            )
        if here == "fail" and self.train.num_rows and self._are_bad_lines_biased:
            yield self._tell_bias("do not ignore them with --bad-rows skip")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        splits = {
            name: {**asdict(facts), "click_rate": facts.click_rate if self.has_label else None}
            for name, facts in (("train", self.train), ("test", self.test))
        }
        return {
            **asdict(self),
            **splits,
            "suggested_table_rows": [column.table_rows for column in self.categories],
            "constant_columns": self.constant_columns,
            "leak_suspects": self.leak_suspects,
            "reasons": self.reasons,
            "notes": self.notes,
            "ok": not self.reasons,
        }


def describe_rows(tally: HashTally, train: SplitFacts, test: SplitFacts) -> RowFacts:
    """What row hashes tell, counted with the codes 2 · is_test + label."""
    _, counts = tally.entries()
    in_train, in_test = counts[:, :2], counts[:, 2:]
    is_shared = (in_train.sum(axis=1) > 0) & (in_test.sum(axis=1) > 0)
    conflicts = in_train[(in_train > 0).all(axis=1)]

    def scaled(found: int, sampled: int, whole: int) -> int:
        return found if tally.is_exact else round(found / max(sampled, 1) * whole)

    num_train, num_test = int(in_train.sum()), int(in_test.sum())
    shared = int(in_test[is_shared].sum())
    return RowFacts(
        method="exact" if tally.is_exact else "sample",
        error_frac=tally.distinct_error_frac / 2,
        duplicate_rows=scaled(num_train - int((in_train > 0).sum()), num_train, train.num_rows),
        conflicting_rows=scaled(int(conflicts.sum()), num_train, train.num_rows),
        overlap_rows=scaled(shared, num_test, test.num_rows),
        overlap_rows_with_label=scaled(int(in_test[in_train > 0].sum()), num_test, test.num_rows),
        overlap_frac=shared / num_test if num_test else 0.0,
    )
