"""Published encodings by name, and what is fixed in them."""

from dataclasses import dataclass, replace
from typing import Literal

from recmill.data.encode.counts import Selection
from recmill.errors import ConfigError
from recmill.settings.encoding import Encoding
from recmill.settings.events import EVENT_PRESETS

MLPERF_CAP = 40_000_000


@dataclass(frozen=True)
class VocabularyRule:
    """Which values get a row of their own, counted on which rows."""

    selection: Selection
    fit: Literal["all", "train"]
    missing_is_zero: bool  # an empty field is looked up as the value 0
    cap: int | None = None  # rows behind it are folded back


@dataclass(frozen=True)
class Preset:
    """How raw columns become numbers and rows; `encoding.dense_min` is found when the data is counted."""

    name: str
    encoding: Encoding
    vocabulary: VocabularyRule | None
    origin: str
    fixed: str  # in the published code, or how this differs from it
    modulo: int | None = None  # without a vocabulary: how many rows the values of every column share


_TORCHREC_DENSE = Encoding(dense="log(x-min+2)", dense_min=0.0, category="vocabulary", category_missing="value_zero")
_GLOBAL_MIN = "the minimum is that of all files, not of each"
_MISSING_LAST = "a missing value has row `mod`, the last one, to itself"
_LOCAL_IDS = "ids are rows of the column's own table; OneFlow's is id + (i − 1)·(mod + 1) in column C_i"
_DENSE_DONE = "log(x+2) is stored, where OneFlow stores x+1 and its model takes log(v+1)"

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "torchrec",
            _TORCHREC_DENSE,
            VocabularyRule(Selection(by_frequency=False), fit="all", missing_is_zero=True),
            "TorchRec's npy_preproc_criteo and contiguous_preproc_criteo, threshold 0",
            f"{_GLOBAL_MIN}; tables have room for all ids, where a modulo folded the last two onto 0 and 1",
        ),
        Preset(
            "torchrec-freq3",
            _TORCHREC_DENSE,
            VocabularyRule(Selection(by_frequency=False, min_count=3), fit="all", missing_is_zero=True),
            "the same with frequency_threshold 3: rarer values share row 1",
            _GLOBAL_MIN,
        ),
        Preset(
            "mlperf",
            _TORCHREC_DENSE,
            VocabularyRule(Selection(by_frequency=False), fit="all", missing_is_zero=True, cap=MLPERF_CAP),
            "the same with tables of 40 million rows at most, larger ids modulo that",
            f"{_GLOBAL_MIN}; ids are exact integers, where the shuffle passed them through float32",
        ),
        Preset(
            "ray",
            Encoding(category="vocabulary"),
            VocabularyRule(Selection(by_frequency=True, min_count=3), fit="train", missing_is_zero=False),
            "Ray's value-count tables: values that occur 3 times, the most frequent first; log(x+3)",
            "a missing field has row 0, which no value shares; tables have room for all ids",
        ),
        Preset(
            "recmill",
            Encoding(category="vocabulary"),
            VocabularyRule(Selection(by_frequency=True, min_count=2), fit="train", missing_is_zero=False),
            "ours: log(x+3); values that occur twice in the training rows, the most frequent first",
            "missing fields have row 0 and unknown values row 1; nothing is learnt of validation and test rows",
        ),
        Preset(
            "oneflow-mod",
            Encoding(dense="log(x+2)", category="modulo", category_missing="last_row"),
            None,
            "OneFlow's criteo1t_parquet with mod_idx 40 million: int(hex, 16) % mod; log(x+2), missing is x = 0",
            f"{_MISSING_LAST}, where the Python tool gave it an id of the next column; {_LOCAL_IDS}; {_DENSE_DONE}",
            modulo=MLPERF_CAP,
        ),
        Preset(
            "oneflow-hash",
            Encoding(dense="log(x+2)", category="xxhash64", category_missing="last_row"),
            None,
            "the same with Spark's xxhash64(i, text) for column i = 1 … 26, the argument order of the Scala tool",
            f"the 64-bit hash is taken modulo 40 million, for tables are bounded here; {_MISSING_LAST}; {_LOCAL_IDS}",
            modulo=MLPERF_CAP,
        ),
    )
}


def find_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise ConfigError(
            f"there is no preset {name!r}; choose from {', '.join(PRESETS)} for click logs, "
            f"{', '.join(EVENT_PRESETS)} for events"
        )
    return PRESETS[name]


def adjust_preset(
    preset: Preset, *, min_count: int | None = None, max_values: int | None = None, modulo: int | None = None
) -> Preset:
    """The preset with other numbers than its own; those it has no use for are rejected."""
    numbers = {"--min-count": min_count, "--max-values": max_values, "--modulo": modulo}
    given = {option: number for option, number in numbers.items() if number is not None}
    rule = preset.vocabulary
    for option, number in given.items():
        if number < 1:
            raise ConfigError(f"{option} {number}: give at least 1")
        if option == "--modulo" and preset.modulo is None:
            raise ConfigError(f"{option} {number}: preset {preset.name} counts values, and takes none modulo")
        if option != "--modulo" and rule is None:
            raise ConfigError(f"{option} {number}: preset {preset.name} counts no values; --modulo sizes its tables")
        if option == "--max-values" and rule is not None and not rule.selection.by_frequency:
            raise ConfigError(
                f"{option} {number}: preset {preset.name} gives rows to values as first seen, not to the most frequent "
                "ones; choose ray or recmill"
            )
    if rule is not None:
        selection = replace(rule.selection, min_count=min_count or rule.selection.min_count, max_values=max_values)
        rule = replace(rule, selection=selection)
    return replace(preset, vocabulary=rule, modulo=modulo or preset.modulo)
