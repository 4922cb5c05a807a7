"""Sizes of memory in options."""

from recmill.errors import ConfigError
from recmill.sizes import parse_size

_LEAST_BYTES = 64 << 20


def read_size(option: str, text: str) -> int:
    """The bytes of an option's value; too little to work in is rejected."""
    size = parse_size(option, text)
    if size < _LEAST_BYTES:
        raise ConfigError(f"{option} {text} is too little to work in; give at least {_LEAST_BYTES >> 20}MiB")
    return size
