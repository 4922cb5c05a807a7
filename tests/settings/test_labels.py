"""What a schema may call positive."""

import pytest

from recmill.errors import ConfigError
from recmill.settings.columns import Column
from recmill.settings.data import DataConfig
from recmill.settings.labels import LabelRule, label_rule
from recmill.settings.tree import from_tree


def test_values_and_bounds_become_a_rule() -> None:
    assert label_rule(("yes", 3), "string") == LabelRule(texts=(b"yes", b"3"))
    assert label_rule((2, "3.5"), "float") == LabelRule(numbers=(2.0, 3.5))
    assert label_rule(" >=4 ", "int") == LabelRule(operator=">=", bound=4.0)
    assert label_rule("<= -1e3", "float") == LabelRule(operator="<=", bound=-1000.0)


@pytest.mark.parametrize(
    ("operator", "accepted"), [(">=", (4.0, 5.0)), (">", (5.0,)), ("<=", (3.0, 4.0)), ("<", (3.0,))]
)
def test_a_bound_has_a_side(operator: str, accepted: tuple[float, ...]) -> None:
    rule = label_rule(f"{operator} 4", "float")
    assert tuple(number for number in (3.0, 4.0, 5.0) if rule.accepts_number(number)) == accepted


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ({"kind": "int", "positive": "yes"}, 'set kind = "string"'),
        ({"kind": "int", "positive": ">= four"}, "not a number"),
        ({"kind": "string", "positive": []}, "at least one value"),
        ({"kind": "string", "positive": ["yes", ""]}, "at least one value"),
        ({"kind": "float"}, 'positive = ">= 4"'),
        ({"kind": "string"}, 'positive = "yes"'),
        ({"role": "dense", "kind": "int", "positive": 1}, "only a label is positive"),
    ],
)
def test_what_cannot_be_is_said(column: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        from_tree(Column, {"name": "answer", "role": "label", **column})


def test_a_schema_that_says_nothing_new_keeps_its_hash() -> None:
    """Checkpoints of earlier versions know their rows by it."""
    expected = "bc50ac617c9e9fef9289a41bae3d314cc1672ad0b8d89264c335905ed4b25598"
    assert DataConfig(table_rows=(10,) * 26).rows_hash == expected
