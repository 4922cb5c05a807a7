"""Tables as a notebook shows them."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table of texts and numbers."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(show(cell))}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def show(value: object) -> str:
    """A cell: numbers with five digits behind the point, nothing for None."""
    if value is None:
        return "–"
    return f"{value:.5f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
