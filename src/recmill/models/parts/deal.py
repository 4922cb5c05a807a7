"""Work that threads take piece by piece, as each ends its last: none waits for one that the machine holds up."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def take_next(_context: Any, counter: Any) -> Any:
    """The first number of an array of one int64, which becomes one more: no two threads are given the same."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, ir.IntType(64)(1), "monotonic")

    return types.int64(counter), generate
