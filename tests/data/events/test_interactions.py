"""The fast reader of events against the slow one, on arbitrary text."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recmill.data.events.interactions import read_text
from recmill.data.events.schema import parse_lines
from recmill.data.logs.text_file import Segment, Source
from recmill.settings.events import EventSchema

SCHEMAS = {
    "comma": EventSchema(columns=("user", "item", "time"), time="time", header=False),
    "twice": EventSchema(separator="::", columns=("user", "item", "time"), time="time", header=False),
    "texts": EventSchema(
        columns=("user", "x", "item"),
        separator=b"\\t".decode("unicode_escape"),
        header=False,
        user_kind="string",
    ),
    "floats": EventSchema(columns=("user", "item", "time"), time="time", time_kind="float", header=False),
    "moments": EventSchema(columns=("user", "item", "time"), time="time", time_kind="iso", header=False),
}
MOMENTS = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat(" ")),
    st.dates().map(lambda day: day.isoformat()),
    st.sampled_from(
        [
            "2024-05-31T12:00:00Z",
            "2024-05-31 12:00:00.5",
            "20240531",
            "2024-02-30",
            "2024-05-31T24:00:00",
            "1999-12-31T23:59:60",
            "2024-05-31T12:00:00.123456789Z",
            "2024-05-31T12:00:00+0200",
            " 2024-05-31 ",
            "2024-05-31T12:00",
            "0000-01-01",
        ]
    ),
)
PIECES = st.one_of(
    st.integers(-5, 10**6).map(str),
    st.sampled_from(
        ["", " ", "7 ", "+3", "x", "1.5", "1e3", '"', "::", ":", ",", "\t", "\r", "\n", "é", "nan", "inf", "-0"]
    ),
)
LINES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)).map(lambda t: "{}\0{}\0{}".format(*t)),
        st.tuples(st.integers(0, 99), st.integers(0, 99), MOMENTS).map(lambda t: "{}\0{}\0{}".format(*t)),
        st.lists(PIECES, max_size=6).map("".join),
    ),
    max_size=8,
)


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES)
def test_both_readers_agree_on_any_text(name: str, lines: list[str], tmp_path: Path) -> None:
    schema = SCHEMAS[name]
    roles = ("user", "item") if schema.time is None else ("user", "item", "time")
    text = "\n".join(line.replace("\0", schema.separator) for line in lines).encode()
    path = tmp_path / "events"
    path.write_bytes(text)
    source = Source(path)
    frame, found_bad = read_text(Segment(source, 0, source.num_bytes), schema, roles, "skip")
    values, bad = parse_lines(text, 1, schema, roles)
    assert found_bad.num_bad == len(bad)
    assert frame.to_dict(as_series=False) == values
