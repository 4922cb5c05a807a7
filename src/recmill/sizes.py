"""Sizes of memory as people write them."""

import re

from recmill.errors import ConfigError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def parse_size(name: str, text: str) -> int:
    """The bytes of `512MiB`, `2G`, `1.5GiB` or a number of bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{name} {text!r} is not a size; write 2GiB, 512MiB or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2].upper()])
