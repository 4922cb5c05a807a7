"""Tables like those that people have: strings, numbers, dates and lists, with a planted rule and its best AUROC.

`recmill synth table --kind shop --out DIR` writes DIR/table.csv, what is known of it (world.json), and the true
probability of every row (truth.npz).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.errors import DataError
from recmill.files import finished_dir, refuse_occupied
from recmill.metrics import ClickMetrics
from recmill.seeds import rng
from recmill.settings.synthetic import SynthTable

TABLE, TRUTH, WORLD = "table.csv", "truth.npz", "world.json"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class TableTruth(NamedTuple):
    """The true logit and the label of every row."""

    logits: NDArray[np.float32]
    labels: NDArray[np.float32]


@dataclass(frozen=True)
class _Table:
    """Columns as they are written, in their order, without the label, and the logit of each row but for the bias."""

    columns: dict[str, Any]
    logits: Floats


class _Draw:
    """Random columns and effects of one world; those that make the rule do not depend on the number of rows."""

    def __init__(self, spec: SynthTable) -> None:
        self._spec = spec

    def values(self, name: str, num_values: int, *, skew: float = 1.1) -> Ints:
        """A value for each row, the first ones the most frequent."""
        shares = 1.0 / np.arange(1, num_values + 1) ** skew
        chances = rng(self._spec.seed, "table", self._spec.kind, "value", name).random(self._spec.rows)
        return np.searchsorted(np.cumsum(shares / shares.sum())[:-1], chances).astype(np.int64)

    def normal(self, name: str) -> Floats:
        """A number for each row."""
        return rng(self._spec.seed, "table", self._spec.kind, "number", name).standard_normal(self._spec.rows)

    def effects(self, name: str, num_values: int, deviation: float) -> Floats:
        """What each value adds to the logit."""
        return deviation * rng(self._spec.seed, "table", self._spec.kind, "effect", name).standard_normal(num_values)

    def pair(self, name: str, a: Ints, b: Ints, deviation: float) -> Floats:
        """What two values together add to the logit of each row."""
        effects = self.effects(name, int(a.max() + 1) * int(b.max() + 1), deviation)
        return np.asarray(effects[a * int(b.max() + 1) + b])

    def seconds(self, num_days: int) -> Ints:
        """When each row happened, from 2014-10-21 on, in order."""
        chances = rng(self._spec.seed, "table", self._spec.kind, "time").random(self._spec.rows)
        return 1413849600 + np.sort((chances * num_days * 86400).astype(np.int64))

    def names(self, prefix: str, values: Ints) -> list[str]:
        """Each value as a word."""
        words = np.array([f"{prefix}{value}" for value in range(int(values.max()) + 1)])
        return list(words[values])

    def codes(self, name: str, values: Ints) -> list[str]:
        """Each value as eight hexadecimal digits, as click logs have them."""
        largest = int(values.max()) + 1
        words = rng(self._spec.seed, "table", "code", name).choice(2**32, largest, replace=False)
        return list(np.array([f"{word:08x}" for word in words.tolist()])[values])


def _clicks(draw: _Draw, spec: SynthTable) -> _Table:
    """Like the Avazu log: nearly all columns are categories, some of very many values."""
    sizes = {"site_id": 2000, "site_category": 20, "app_id": 1500, "app_category": 25, "device_model": 1000}
    coded = {name: draw.values(name, size) for name, size in sizes.items()}
    coded["device_ip"] = draw.values("device_ip", max(50, spec.rows // 5), skew=0.6)
    whole = {name: draw.values(name, size) for name, size in (("banner_pos", 7), ("device_type", 4), ("C14", 1200))}
    seconds = draw.seconds(10)
    hour = (seconds // 3600) % 24
    logits = 0.5 * np.sin(hour * 2 * np.pi / 24)
    for name, values in {**coded, **whole}.items():
        if name != "device_ip":
            logits = logits + draw.effects(name, int(values.max()) + 1, 0.25)[values]
    logits += draw.pair("site × banner", coded["site_category"], whole["banner_pos"], 0.8)
    logits += draw.pair("app × hour", coded["app_category"], hour // 4, 0.8)
    stamps = seconds.astype("datetime64[s]").astype(object)
    columns: dict[str, Any] = {
        "id": np.arange(spec.rows) + 10**15,
        "hour": [moment.strftime("%y%m%d%H") for moment in stamps],
        **{name: draw.codes(name, values) for name, values in coded.items()},
        **whole,
    }
    return _Table(columns, logits)


def _shop(draw: _Draw, spec: SynthTable) -> _Table:
    """Like the log of a shop: dates, words with separators in them, prices, gaps and a list of tags."""
    country, brand, kind = draw.values("country", 30), draw.values("brand", 400), draw.values("category", 40)
    customer, device = draw.values("customer", max(50, spec.rows // 8), skew=0.7), draw.values("device", 4)
    price, age = np.exp(3 + draw.normal("price")), np.abs(40 + 12 * draw.normal("age"))
    member = (draw.normal("member") > 0.4).astype(np.int64)
    seconds = draw.seconds(30)
    weekday = (seconds // 86400 + 3) % 7
    tags = np.stack([draw.values(f"tag {place}", 60) for place in range(3)], axis=1)
    num_tags = draw.values("tags", 4, skew=0.5)
    tag_effects = draw.effects("tags", 60, 0.3)
    logits = sum(
        (draw.effects(name, int(values.max()) + 1, 0.35)[values]
         for name, values in (("country", country), ("brand", brand), ("category", kind), ("device", device))),
        start=np.zeros(spec.rows),
    )  # fmt: skip
    logits += 1.2 * np.exp(-((np.log(price) - 3.3) ** 2) / 0.5) + 0.4 * np.sin(age / 8)
    logits += draw.pair("category × country", kind, country, 0.7) + draw.pair("device × member", device, member, 0.5)
    logits += 0.3 * (weekday >= 5) + 0.6 * member * (price > 40)
    logits += sum(np.where(num_tags > place, tag_effects[tags[:, place]], 0.0) for place in range(3))
    unknown_age = draw.normal("unknown age") > 1.2
    logits[unknown_age] += 0.4 - 0.4 * np.sin(age[unknown_age] / 8)
    columns: dict[str, Any] = {
        "order time": np.datetime_as_string(seconds.astype("datetime64[s]")).tolist(),
        "customer": draw.names("customer-", customer),
        "country": draw.names("Land ", country),
        "device": np.array(["mobile", "desktop", "tablet", "tv"])[device].tolist(),
        "category": draw.names("Home, Garden & ", kind),
        "brand": draw.names('"Brand" No. ', brand),
        "price": np.round(price, 2),
        "age": [None if gap else round(float(value), 1) for gap, value in zip(unknown_age, age, strict=True)],
        "member": member,
        "tags": ["|".join(f"tag{tag}" for tag in row[:count]) for row, count in zip(tags, num_tags, strict=True)],
    }
    return _Table(columns, logits)


# By kind: the columns and logits, the name of the label, and the share of positive rows.
KINDS: dict[str, tuple[Callable[[_Draw, SynthTable], _Table], str, float]] = {
    "clicks": (_clicks, "click", 0.17),
    "shop": (_shop, "purchased", 0.12),
}


def write_table(spec: SynthTable, out_dir: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the table into a directory that appears when it is complete; what is known of it."""
    import polars as pl  # heavy

    refuse_occupied(out_dir, overwrite=overwrite, is_ours=_is_ours)
    build, label, share = KINDS[spec.kind]
    table = build(_Draw(spec), spec)
    logits = (table.logits + _find_bias(table.logits, share)).astype(np.float32)
    chances = rng(spec.seed, "table", spec.kind, "label").random(spec.rows)
    labels = (chances < 1 / (1 + np.exp(-logits))).astype(np.float32)
    metrics = ClickMetrics()
    metrics.update(logits, labels)
    known = {"kind": spec.kind, "rows": spec.rows, "seed": spec.seed, "label": label,
             "best_possible": metrics.result().as_dict()}  # fmt: skip
    frame = pl.DataFrame({**table.columns, label: labels.astype(np.int64)}, strict=False)
    with finished_dir(out_dir, overwrite=overwrite, is_ours=_is_ours) as scratch:
        frame.write_csv(scratch / TABLE)
        np.savez(scratch / TRUTH, logits=logits, labels=labels)
        (scratch / WORLD).write_text(json.dumps(known, indent=1))
    return known


def _is_ours(directory: Path) -> bool:
    return (directory / WORLD).is_file()


def _find_bias(logits: Floats, share: float) -> float:
    """What is added to the logits to make the mean probability a given share."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if (1 / (1 + np.exp(-logits - middle))).mean() > share else (middle, high)
    return low


def read_truth(path: Path) -> TableTruth | None:
    """What `write_table` wrote beside the table that is given, or in its directory; None for other data."""
    if path.is_file() and path.name != TABLE:
        return None
    truth_path = (path if path.is_dir() else path.parent) / TRUTH
    if not truth_path.is_file():
        return None
    try:
        with np.load(truth_path) as arrays:
            return TableTruth(arrays["logits"], arrays["labels"])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{truth_path} is damaged: {error}; write it again with `recmill synth table`") from None
