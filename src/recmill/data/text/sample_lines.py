"""The lines of a sample of text: at every newline, or only at those outside quotes."""

import re
from functools import cache


def lines_at_newlines(text: str) -> list[str]:
    """What stands between newlines, but for blank lines."""
    return _without_blank(text.split("\n"))


def lines_by_quotes(text: str, separator: str) -> list[str] | None:
    """The lines if a newline inside quotes ends none; None if there is no such newline.

    A line with a quote out of place ends at its first newline. A sample may end inside quotes: that line is left out.
    """
    if '"' not in text:
        return None
    row, unfinished = _patterns(separator)
    lines, at, has_break = list[str](), 0, False
    while at < len(text):
        found = row.match(text, at)
        if found is None and has_break and unfinished.match(text, at):
            break
        newline = text.find("\n", at)
        end = found.end() if found is not None else newline if newline >= 0 else len(text)
        has_break |= 0 <= newline < end
        lines.append(text[at:end])
        at = end + 1
    return _without_blank(lines) if has_break else None


@cache
def _patterns(separator: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A line whose quotes are all in place; and one whose last quote is open to the end of the text."""
    mark = re.escape(separator)
    field = rf'(?:"(?:[^"]++|"")*+"\r?|[^"{mark}\n][^{mark}\n]*+|)'
    row = rf"{field}(?:{mark}{field})*+(?=\n|\Z)"
    return re.compile(row), re.compile(rf'(?:{field}{mark})*+"(?:[^"]++|"")*+\Z')


def _without_blank(lines: list[str]) -> list[str]:
    return [line.removesuffix("\r") for line in lines if line.strip("\r")]
