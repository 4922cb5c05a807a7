"""Sizes of memory as people write them."""

import re

from recmill.errors import ConfigError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST_BYTES = 64 << 20


def read_size(option: str, text: str) -> int:
    """`512MiB`, `2G`, `1.5GiB` or a number of bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{option} {text!r} is not a size; write 2GiB, 512MiB or a number of bytes")
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    if size < _LEAST_BYTES:
        raise ConfigError(f"{option} {text} is too little to work in; give at least {_LEAST_BYTES >> 20}MiB")
    return size
