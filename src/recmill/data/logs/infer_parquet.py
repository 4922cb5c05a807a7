"""A first schema from the types of Parquet files and the first of their rows."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.data.logs.infer import (
    Guess,
    SampleTable,
    guess_column,
    guess_kind,
    guess_label,
    guess_several,
    label_settings,
    tell_missing,
    with_parts,
)
from recmill.data.logs.raw_format import NOTHING_ASKED, AskedColumns, Draft
from recmill.errors import DataError
from recmill.settings.columns import Format, schema_from_tree

if TYPE_CHECKING:
    from recmill.data.logs.parquet_rows import Sample

SAMPLE_ROWS = 20_000


def infer_parquet(paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
    """A schema for files of the columns that these have."""
    samples = _read_samples(paths)
    num_rows = max((len(sample.values) for sample in samples.values()), default=0)
    if num_rows == 0:
        raise DataError(f"{paths[0]} has no row to infer a schema from; give files with some")
    return infer_typed(samples, num_rows, name=name, file_format="parquet", asked=asked)


def infer_typed(
    samples: dict[str, "Sample"], num_rows: int, *, name: str, file_format: Format, asked: AskedColumns
) -> Draft:
    """A schema for columns of these types and first values, whatever the format."""
    asked = asked.fitted(list(samples))
    label_name, why = _guess_label(samples, asked)
    guesses = {name: guess_typed(name, sample, asked) for name, sample in samples.items() if name != label_name}
    if label_name is not None:
        values = [written(value) for value in samples[label_name].values]
        rule = {"role": "label", "kind": "int"} if asked.positive is None else label_settings(values, asked.positive)
        guesses[label_name] = Guess(rule or {}, why)
    guesses = {name: guesses[name] for name in samples}
    guesses = with_parts(guesses, asked)
    columns = [{"name": name, **guess.settings} for name, guess in guesses.items()]
    schema = schema_from_tree({"name": name, "format": file_format, "columns": columns}, "inferred")
    preface = (
        f"A first guess by `recmill schema infer` from the types of the columns and {num_rows:,} rows: "
        "look at every line of it."
    )
    return Draft(schema, (preface,), {name: guess.note for name, guess in guesses.items()})


def _read_samples(paths: Sequence[Path]) -> dict[str, "Sample"]:
    """The first rows of the files, one after the other, until they are enough."""
    from recmill.data.logs.parquet_rows import read_sample  # pyarrow is heavy

    joined = read_sample(paths[0], SAMPLE_ROWS)
    for path in paths[1:]:
        room = SAMPLE_ROWS - max(len(sample.values) for sample in joined.values())
        more = read_sample(path, room) if room > 0 else {}
        for name, sample in more.items():
            known = joined.get(name)
            if known is None or known.type_name != sample.type_name:
                told = f"of type {known.type_name}" if known else "not there"
                raise DataError(
                    f"{path}: column {name} is of type {sample.type_name}, and in {paths[0]} it is {told}; "
                    "infer from files that have the same columns"
                )
            known.values.extend(sample.values)
    return joined


def _guess_label(samples: dict[str, "Sample"], asked: AskedColumns) -> tuple[str | None, str]:
    """Among the columns of numbers."""
    numbers = {name: s for name, s in samples.items() if s.type.read_as in ("int", "float") and not s.type.is_list}
    wanted = asked.label
    if wanted is not None and wanted not in numbers:
        if isinstance(asked.positive, tuple) and samples[wanted].type.read_as == "string":
            return wanted, "the label, as asked for"
        raise DataError(
            f"--label {wanted}: a label is a number, 0 or 1; this column is {samples[wanted].type_name}; if it holds "
            f"words, say which are positive, as in --label '{wanted} = yes, maybe'"
        )
    columns = [[written(value) for value in sample.values] for sample in numbers.values()]
    return guess_label(SampleTable(list(numbers), columns, has_header=False), asked)


def guess_typed(name: str, sample: "Sample", asked: AskedColumns = NOTHING_ASKED) -> Guess:
    """What a column other than the label may be."""
    read_as = sample.type.read_as
    if name in asked.ignored:
        return Guess({"role": "ignored"}, "ignored, as asked for")
    if name in asked.categories and read_as in (None, "float", "time"):
        raise DataError(
            f"--categories {name}: the column is {sample.type_name}, and a category is an integer or a string; cast it "
            "when the file is written"
        )
    if name == asked.time and (read_as is None or sample.type.is_list):
        raise DataError(f"--time {name}: the column is {sample.type_name}, which is no time; name another column")
    if read_as is None:
        return Guess({"role": "ignored"}, f"{sample.type_name} is not read; to use it, cast it to a number or a string")
    if not sample.type.is_list:
        values = [written(value) for value in sample.values]
        guess = guess_column(name, values, "", _kind(read_as, [value for value in values if value]), asked)
        is_no_time = read_as == "time" and guess.settings["role"] != "time"
        return Guess({"role": "ignored"}, "always empty, or beyond the year 9999") if is_no_time else guess
    lists = [[written(item) for item in items or () if written(item)] for items in sample.values]
    present = [items for items in lists if items]
    if not present:
        return Guess({"role": "ignored"}, "always empty")
    kind = _kind(read_as, [item for items in present for item in items])
    return guess_several(present, kind, tell_missing(len(present), len(lists)))


def _kind(read_as: str, present: Sequence[str]) -> str:
    """Of a type; texts may all be hexadecimal."""
    if read_as != "string":
        return read_as
    return "hex" if guess_kind(present) == "hex" else "string"


def written(value: object) -> str:
    """A value as a CSV would have it; nothing for what is missing."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if is_whole else str(value)  # type: ignore[call-overload]
