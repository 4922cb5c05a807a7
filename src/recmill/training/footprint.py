"""What a process takes: before it has a model, and whether all of a run fits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recmill.errors import ConfigError

FLOAT_BYTES = 4
GIB = 1 << 30
# Python with torch, numba and its compiled kernels, and blocks of text read ahead: what the smallest run takes.
BASE_BYTES = 580 << 20


@dataclass(frozen=True)
class Need:
    """A part of what a run needs, and the setting that makes it smaller."""

    what: str
    num_bytes: int
    way_out: Callable[[int], str]  # given the bytes that this part may have


def lower_batch(setting: str, batch: int, num_bytes: int) -> Callable[[int], str]:
    """A way out for what grows with a batch: the largest that fits."""

    def advise(room: int) -> str:
        largest = batch * room // max(num_bytes, 1)
        return f"set {setting}={largest} or less" if largest >= 1 else f"lower {setting}"

    return advise


def refuse_too_large(needs: Sequence[Need], memory_bytes: int) -> None:
    """Complain about a run that needs more than all memory there is.

    The largest part is the one to lower; if the others alone are too much, all that matter are.
    """
    total = BASE_BYTES + sum(need.num_bytes for need in needs)
    if total <= memory_bytes:
        return
    largest = max(needs, key=lambda need: need.num_bytes)
    room = memory_bytes - (total - largest.num_bytes)
    if room > 0:
        way_out = largest.way_out(room)
    else:
        way_out = " and ".join(need.way_out(0) for need in needs if need.num_bytes > memory_bytes // 10)
    parts = ", ".join(f"{need.what} {need.num_bytes / GIB:.1f}" for need in needs)
    raise ConfigError(
        f"this run needs {total / GIB:.1f} GiB, and there are {memory_bytes / GIB:.1f} GiB ({parts}); "
        f"{way_out} (`recmill plan` shows the sizes)"
    )
