"""Published encodings by name, and what is mended in them."""

from dataclasses import dataclass
from typing import Literal

from recmill.data.census import Selection
from recmill.data.encode import Encoding
from recmill.errors import ConfigError

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
    mended: str


_TORCHREC_DENSE = Encoding(dense="log(x-min+2)", dense_min=0.0, category="vocabulary", category_missing="value_zero")
_GLOBAL_MIN = "the minimum is that of all files, not of each"

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
    )
}


def find_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}; choose from {', '.join(PRESETS)}")
    return PRESETS[name]
