"""Lines of a text that all have the same number of fields."""

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit

_LINE_FEED, _RETURN = 0x0A, 0x0D


@njit(nogil=True, cache=True)
def count_even_lines(text: NDArray[np.uint8], separator: int, per_line: int) -> int:
    """How many lines there are, empty ones left out, if each has so many separators; otherwise −1."""
    num_lines = num_separators = num_bytes = 0
    for i in range(len(text) + 1):
        is_end = i == len(text) or text[i] == _LINE_FEED
        if not is_end:
            num_separators += text[i] == separator
            num_bytes += 1
            continue
        if num_bytes > 1 or (num_bytes == 1 and text[i - 1] != _RETURN):
            if num_separators != per_line:
                return -1
            num_lines += 1
        num_separators = num_bytes = 0
    return num_lines
