"""Where a new run's first values come from, if not from its seed: settings, and what follows from shapes alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from recmill.errors import ConfigError

Shape = tuple[int, int]


@dataclass(frozen=True)
class TableMatch:
    """Which tables begin with saved rows, and with how many of them."""

    num_rows: Mapping[str, int]  # by table, those taken over
    grown: Mapping[str, tuple[int, int]]  # rows there and here
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]


def match_tables(
    here: Mapping[str, Shape], there: Mapping[str, Shape], chosen: Sequence[str], place: str
) -> TableMatch:
    """What can be taken over; a table that cannot is rejected by its name."""
    for name in chosen:
        _refuse_unknown(name, here, "this run has")
        _refuse_unknown(name, there, f"{place} has")
    common = [name for name in here if name in there and (not chosen or name in chosen)]
    for name in common:
        (rows_here, dim_here), (rows_there, dim_there) = here[name], there[name]
        others = [other for other in common if other != name]
        way_out = f"or leave it out with warm_start.tables (which may name {', '.join(others[:3]) or 'others'}, …)"
        if dim_here != dim_there:
            raise ConfigError(
                f"table {name} has dimension {dim_there} in {place} and {dim_here} here; "
                f"set model.embedding_dim={dim_there}, {way_out}"
            )
        if rows_there > rows_here:
            raise ConfigError(
                f"table {name} has {rows_there:,} rows in {place} and {rows_here:,} here: it would lose "
                f"{rows_there - rows_here:,} of them; give it at least {rows_there:,} rows "
                f"(data.table_rows, data.max_rows_per_table), {way_out}"
            )
    return TableMatch(
        num_rows={name: there[name][0] for name in common},
        grown={name: (there[name][0], here[name][0]) for name in common if there[name][0] < here[name][0]},
        only_here=tuple(name for name in here if name not in there),
        only_there=tuple(name for name in there if name not in here),
    )


def _refuse_unknown(name: str, known: Mapping[str, Shape], whose: str) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(list(known)[:5])}"
        raise ConfigError(f"warm_start.tables names {name!r}, and {whose} no such table; {hint}")
