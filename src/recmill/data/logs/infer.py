"""A first schema from a sample of text or Parquet: every guess is kept beside what it was guessed from."""

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recmill.data.logs.infer_times import PART_NOTES, TimeGuess, guess_time, require_time
from recmill.data.logs.raw_format import NOTHING_ASKED, AskedColumns, Draft
from recmill.data.text.sample_lines import lines_at_newlines, lines_by_quotes
from recmill.errors import DataError
from recmill.settings.columns import TimePart, schema_from_tree

SEPARATORS = ("\t", ",", ";", "|", " ")
LABEL_NAMES = (
    *("label", "click", "clicked", "is_click", "target", "y", "purchase", "purchased", "bought", "buy", "conversion"),
    *("converted", "is_conversion", "installed", "is_attributed", "liked", "churn", "churned", "response"),
)
FEW_VALUES = 20  # integers with no more distinct values than this are names of things rather than amounts
POSITIVE_WORDS = ("yes", "y", "true", "t", "click", "clicked", "buy", "bought", "purchase", "positive", "pos", "1")
MAX_SUGGESTED_ROWS = 1_000_000
INNER_SEPARATORS = "|;,^~"
MAX_SUGGESTED_VALUES = 32
ALMOST_ALL_DIFFER = '; almost all differ: is it rather role = "ignored"?'
NAMES_THE_ROW = "it names the row and says nothing of others"
_LEAST_ROWS = 16
_LEAST_NUMBERED = 20  # fewer rows may be numbered by chance
_EXACT_FLOATS = 2**53  # amounts are not so large that floats mix them up
_FEW_ODD = 0.02  # the share of texts in a column that may have been meant to be numbers

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_LONG_INTEGER = re.compile(r"-?[0-9]{1,40}")
_FLOAT = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[0-9a-fA-F]{8}")
_NAME_OF_AN_ID = re.compile(r"(^|_)(id|code|zip)s?$|[a-z]I[dD]$", re.IGNORECASE)


@dataclass(frozen=True)
class Guess:
    """A column's settings, and what they were guessed from."""

    settings: dict[str, Any]
    note: str
    parts: tuple[TimePart, ...] = ()  # of a time, those that are worth a column


@dataclass(frozen=True)
class SampleTable:
    """The fields of a sample: names, and the values of every column."""

    names: list[str]
    columns: list[list[str]]
    has_header: bool

    @property
    def num_rows(self) -> int:
        """How many lines the guesses rest on."""
        return len(self.columns[0])


def infer(samples: Sequence[bytes], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
    """A schema for text that begins like these samples, one of each file, of whole lines."""
    texts = [sample.decode("utf-8", errors="replace").removeprefix("\ufeff") for sample in samples]
    if not any(text.strip("\r\n") for text in texts):
        raise DataError("there is no line to infer a schema from; give files with some")
    separator, share = guess_separator(texts)
    files = [split_lines(text, separator) for text in texts]
    quoted = has_quoted_field([line for file in files for line in file], separator)
    table = read_table(files, separator, quoted)
    guesses = with_parts(dict(zip(table.names, guess_columns(table, separator, asked), strict=True)), asked)
    schema = schema_from_tree(
        {
            "name": name,
            "separator": separator,
            "header": table.has_header,
            "quoted": quoted,
            "columns": [{"name": n, **guess.settings} for n, guess in guesses.items()],
        },
        "inferred",
    )
    notes = {
        "separator": f"{share:.0%} of the lines have {len(table.names)} fields",
        "header": "the first line names the columns" if table.has_header else "the first line looks like the others",
        "quoted": "some fields stand in double quotes",
        **{n: guess.note for n, guess in guesses.items()},
    }
    preface = f"A first guess by `recmill schema infer` from {table.num_rows:,} lines: look at every line of it."
    return Draft(schema, (preface,), notes)


def guess_separator(texts: Sequence[str]) -> tuple[str, float]:
    """The separator by which most lines have the same number of fields, more than one; and the share of those lines."""
    best, best_score = ",", (False, 0, 1.0)
    for separator in SEPARATORS:
        num_fields, share = usual_width([line for text in texts for line in split_lines(text, separator)], separator)
        score = (share >= 0.9, num_fields, share)  # text may hold a separator of another kind, as often in every line
        if num_fields > 1 and score > best_score:
            best, best_score = separator, score
    return best, best_score[2]


def usual_width(lines: Sequence[str], separator: str) -> tuple[int, float]:
    """How many fields most lines have, and the share of these lines."""
    counts = Counter(len(fields) for fields in _fields(lines, separator, has_quoted_field(lines, separator)))
    num_fields, num_lines = counts.most_common(1)[0]
    return num_fields, num_lines / len(lines)


def has_quoted_field(lines: Sequence[str], separator: str) -> bool:
    """Whether a field begins and another ends with a quote."""
    begins, ends = re.compile(f'(^|{re.escape(separator)})"'), re.compile(f'"({re.escape(separator)}|$)')
    return any(begins.search(line) and ends.search(line) for line in lines)


def split_lines(text: str, separator: str) -> list[str]:
    """The lines of a sample; a newline inside quotes ends none, if more lines are alike then, or have more fields."""
    lines, joined = lines_at_newlines(text), lines_by_quotes(text, separator)
    if joined is None:
        return lines
    (width, share), (joined_width, joined_share) = usual_width(lines, separator), usual_width(joined, separator)
    return joined if (joined_share, joined_width) > (share, width) else lines


def _fields(lines: Sequence[str], separator: str, quoted: bool) -> list[list[str]]:
    if not quoted:
        return [line.split(separator) for line in lines]
    try:
        return [next(csv.reader([line], delimiter=separator), [""]) for line in lines]
    except csv.Error as error:
        raise DataError(
            f"a line of the sample cannot be split into quoted fields ({error}); are the files text? Look at the first "
            "lines, and write a schema if they are (docs/data.md)"
        ) from None


def read_table(files: Sequence[Sequence[str]], separator: str, quoted: bool) -> SampleTable:
    """The fields of all lines that have as many as most, without the headers."""
    rows_of = [_fields(file, separator, quoted) for file in files if file]
    counts = Counter(len(row) for rows in rows_of for row in rows)
    width = counts.most_common(1)[0][0]
    first = rows_of[0][0]
    below = [row for rows in rows_of for row in (rows[1:] if rows[0] == first else rows)]  # a header is a file's first
    others = [row for row in below if len(row) == width]
    has_header = len(first) == width and is_header(first, others)
    rows = others if has_header else [row for rows in rows_of for row in rows if len(row) == width]
    if not rows:
        raise DataError("there is a header and no row below it; give files with some rows")
    names = first if has_header else [f"column_{place}" for place in range(1, width + 1)]
    if len(set(names)) < width or not all(names):
        raise DataError(f"the header {names} names a column twice or not at all; give every column a name of its own")
    return SampleTable(names, [list(column) for column in zip(*rows, strict=True)], has_header)


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first line names the columns: words where numbers follow, or words that never come again."""
    if any(not field or _FLOAT.fullmatch(field) or _HEX.fullmatch(field) for field in first):
        return False
    if not rows:
        return True
    columns = list(zip(*rows, strict=True))
    if any(all(not value or _FLOAT.fullmatch(value) for value in column) for column in columns):
        return True
    return len(set(first)) == len(first) and not any(f in column for f, column in zip(first, columns, strict=True))


def guess_columns(table: SampleTable, separator: str, asked: AskedColumns) -> list[Guess]:
    """Role, kind and more of every column."""
    asked = asked.fitted(table.names)
    label_name, why = guess_label(table, asked)
    return [
        Guess(label_settings(values, asked.positive) or {}, why)
        if name == label_name
        else guess_column(name, values, separator, asked=asked)
        for name, values in zip(table.names, table.columns, strict=True)
    ]


def label_settings(values: Sequence[str], positive: str | tuple[str, ...] | None = None) -> dict[str, Any] | None:
    """How a column is read as a label, if it may be one: 0 and 1, true and false, or a word for yes and another.

    With a bound or values that are positive, any column may.
    """
    found = set(values)
    if positive is not None:
        are_numbers = all(_FLOAT.fullmatch(value) for value in found if value)
        if isinstance(positive, str):
            return {"role": "label", "kind": "float", "positive": positive} if are_numbers else None
        told = (
            [float(value) for value in positive] if are_numbers and all(map(_FLOAT.fullmatch, positive)) else positive
        )
        kind = "string" if told is positive else "float"
        return {"role": "label", "kind": kind, "positive": told[0] if len(told) == 1 else list(told)}
    if found <= {"0", "1"} or {value.lower() for value in found} <= {"true", "false"}:
        return {"role": "label", "kind": "int"}
    words = [value for value in found if value.lower() in POSITIVE_WORDS]
    if len(found) == 2 and len(words) == 1 and "" not in found:
        return {"role": "label", "kind": "string", "positive": words[0]}
    return None


def with_parts(guesses: Mapping[str, Guess], asked: AskedColumns) -> dict[str, Guess]:
    """The guesses by name, and behind each time its parts; a schema has one time, so others are only their source."""
    found = dict[str, Guess]()
    first = next((name for name, guess in guesses.items() if guess.settings["role"] == "time"), None)
    for name, guess in guesses.items():
        is_other = guess.settings["role"] == "time" and name != (asked.time or first)
        found[name] = Guess({**guess.settings, "role": "ignored"}, guess.note) if is_other else guess
        for part in guess.parts:
            part_name = f"{name}_{part}"
            while part_name in guesses or part_name in found:
                part_name += "_part"
            settings = {"role": "category", "source": name, "part": part}
            found[part_name] = Guess(settings, f"{PART_NOTES[part]} {name}")
    return found


def guess_label(table: SampleTable, asked: AskedColumns) -> tuple[str | None, str]:
    """The label's name, if there is one, and why it is it."""
    others, wanted = asked.are_no_label, asked.label
    columns = {n: v for n, v in zip(table.names, table.columns, strict=True) if n not in others}
    binary = [n for n, values in columns.items() if set(values) == {"0", "1"}]
    if wanted is not None:
        values = table.columns[table.names.index(wanted)]
        if label_settings(values, asked.positive) is None:
            shown = ", ".join(sorted(set(values) - {"0", "1"})[:3])
            raise DataError(
                f"--label {wanted}: a label is 0 or 1, and this column holds {shown}; say what is positive, as in "
                f"--label '{wanted} >= 4' or --label '{wanted} = yes, maybe'"
            )
        return wanted, "the label, as asked for"
    named = {n: v for n, v in columns.items() if n.lower() in LABEL_NAMES}
    for name, values in named.items():
        if len(set(values)) == 2 and (settings := label_settings(values)) is not None:
            shown = f"{settings['positive']!r} is positive" if "positive" in settings else "0 or 1"
            return name, f"the label: {shown}, and called so"
    if len(binary) > 1:
        raise DataError(
            f"several columns hold 0 and 1 only, and none is called like a label: {', '.join(binary)}; "
            "name the label with --label"
        )
    return (binary[0], "the label? the only column of 0 and 1") if binary else (None, "")


def guess_column(
    name: str, values: Sequence[str], separator: str, kind: str | None = None, asked: AskedColumns = NOTHING_ASKED
) -> Guess:
    """What a column other than the label may be, if its kind is known or not; what was asked for comes first."""
    present = [value for value in values if value]
    missing, is_category = tell_missing(len(present), len(values)), name in asked.categories
    if name in asked.ignored:
        return Guess({"role": "ignored"}, "ignored, as asked for")
    if time := None if is_category else _guess_time(name, present, asked):
        settings = {"role": "time", "kind": "time", "time_format": time.time_format}
        return Guess(settings, f"{time.note}{missing}", time.parts)
    if len(set(values)) == 1 and not is_category:
        return Guess({"role": "ignored"}, f"always {values[0][:40]!r}" if present else "always empty")
    kind = kind or guess_kind(present)
    if not is_category and is_amount(name, present, kind):
        return _guess_dense(present, kind, missing)
    guess = _guess_category(present, "string" if kind == "float" else kind, separator, missing)
    is_row_name = len(set(present)) == len(values) > 1000 or counts_rows(values)
    if is_row_name and not is_category and "max_values" not in guess.settings:
        return Guess({"role": "ignored"}, f"all {len(values):,} values differ: {NAMES_THE_ROW}")
    return Guess(guess.settings, f"a category, as asked for: {guess.note}") if is_category else guess


def is_amount(name: str, present: Sequence[str], kind: str) -> bool:
    """Whether numbers are amounts; few integers, and those that look like ids, are names of things."""
    if kind != "int":
        return kind == "float"
    is_code = any(len(value) > 1 and value[0] == "0" for value in present)
    is_beyond_floats = any(len(value) > 15 and abs(int(value)) >= _EXACT_FLOATS for value in present)
    is_name = is_code or is_beyond_floats or counts_rows(present) or _NAME_OF_AN_ID.search(name)
    return len(set(present)) > FEW_VALUES and not is_name


def counts_rows(values: Sequence[str]) -> bool:
    """Whether each of many values is the one above and one more."""
    if len(values) <= _LEAST_NUMBERED or not all(_INTEGER.fullmatch(value) for value in (values[0], values[1])):
        return False
    return all(value == str(int(values[0]) + row) for row, value in enumerate(values))


def _guess_time(name: str, present: Sequence[str], asked: AskedColumns) -> TimeGuess | None:
    return require_time(name, present) if name == asked.time else guess_time(name, present)


def _guess_dense(present: Sequence[str], kind: str, missing: str) -> Guess:
    numbers = [float(value) for value in present]
    note = f"from {min(numbers):g} to {max(numbers):g}{missing}"
    if kind == "int" and len(set(present)) == len(present) > 1000:
        note += '; all differ: if it names the row, write role = "ignored"'
    return Guess({"role": "dense", "kind": kind, **guess_dense_encoding(numbers)}, note)


def _guess_category(present: Sequence[str], kind: str, separator: str, missing: str) -> Guess:
    """A table for the values of a column, one in a field or several."""
    inner = guess_inner_separator(present, separator) if kind == "string" else None
    if inner is not None:
        lists = [[part for part in value.split(inner) if part] for value in present]
        kind = guess_kind([part for parts in lists for part in parts])
        guess = guess_several(lists, "string" if kind == "float" else kind, missing)
        return Guess({**guess.settings, "inner_separator": inner}, guess.note)
    distinct = len(set(present))
    note = f"{distinct:,} distinct values{missing}"
    odd = [value for value in present if not _FLOAT.fullmatch(value)] if kind == "string" else []
    if 0 < len(odd) <= _FEW_ODD * len(present):
        note += f"; {1 - len(odd) / len(present):.1%} are numbers, and {odd[0][:20]!r} is none: is it a missing value?"
    if distinct > 0.9 * len(present) and len(present) > 100:
        note += ALMOST_ALL_DIFFER
    return Guess({"role": "category", "kind": kind, "rows": suggest_rows(present, kind)}, note)


def tell_missing(num_present: int, num_values: int) -> str:
    """The end of a note."""
    return f", {1 - num_present / num_values:.0%} empty" if num_present < num_values else ""


def guess_inner_separator(present: Sequence[str], separator: str) -> str | None:
    """A character that takes many fields apart into far fewer different parts."""
    distinct = set(present)
    for inner in INNER_SEPARATORS.replace(separator, ""):
        parts = {part for value in distinct for part in value.split(inner)}
        if sum(inner in value for value in present) >= 0.1 * len(present) and len(parts) <= 0.5 * len(distinct):
            return inner
    return None


def guess_several(lists: Sequence[Sequence[str]], kind: str, missing: str) -> Guess:
    """A category of several values in one field."""
    parts = [part for values in lists for part in values]
    most = max(map(len, lists))
    settings = {
        "role": "category",
        "kind": kind,
        "rows": suggest_rows(parts, kind),
        "max_values": min(most, MAX_SUGGESTED_VALUES),
    }
    return Guess(settings, f"{len(set(parts)):,} distinct values, up to {most} in one field{missing}")


def guess_kind(present: Sequence[str]) -> str:
    """The narrowest kind that all values have."""
    if all(_HEX.fullmatch(value) for value in present) and not all(_INTEGER.fullmatch(value) for value in present):
        return "hex"
    if all(_INTEGER.fullmatch(value) for value in present):
        return "int"
    if all(_LONG_INTEGER.fullmatch(value) for value in present):
        return "int" if all(abs(int(value)) < 2**63 for value in present) else "string"
    is_float = all(_FLOAT.fullmatch(value) and math.isfinite(float(value)) for value in present)
    return "float" if is_float else "string"


def guess_dense_encoding(numbers: Sequence[float]) -> dict[str, Any]:
    """Small numbers as they are; large ones by a logarithm that suits their least."""
    low, high = min(numbers), max(numbers)
    if max(abs(low), abs(high)) <= 10:
        return {"encoding": "identity"}
    return {"encoding": "log(x+3)"} if low >= -2 else {"encoding": "log(x-min+2)", "min": low}


def suggest_rows(present: Sequence[str], kind: str) -> int:
    """Room for the values seen and those to come: ten rows for each, forty if new ones still came at the end.

    Values meet in a row by chance: of ten rows for each, one value in ten shares its own. A thousand rows cost little.
    """
    seen = set(present)
    if not seen:
        return _LEAST_ROWS
    if kind == "int" and min(map(int, seen)) >= 0 and max(map(int, seen)) <= 4 * len(seen):
        # small numbers take a row each, and the missing one its own; the sample may not hold the largest
        return max(_LEAST_ROWS, 2 * max(map(int, seen)) + 2)
    late = set(present[len(present) // 2 :]) - set(present[: len(present) // 2])
    is_growing = len(late) > 0.05 * len(seen)
    return min(max(1000, (40 if is_growing else 10) * len(seen)), MAX_SUGGESTED_ROWS)
