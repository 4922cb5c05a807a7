"""Room for a row of numbers on the stack of a kernel.

Of two arrays, LLVM never knows that they do not overlap, and then works number by number. Of a place on the stack it
does: loops over a known number of places, from an array into such a row, over such rows or back into an array, become
vector instructions, and a row that is small enough never leaves the registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

_NUMBER_BYTES = 4


@intrinsic(prefer_literal=True)
def row_on_stack(_context: Any, length: Any) -> Any:
    """A new row of so many float32, a constant of the kernel, with whatever is in it."""
    kind, count = types.Array(types.float32, 1, "C"), length.literal_value

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        room = cgutils.alloca_once(builder, ir.ArrayType(ir.FloatType(), max(1, count)))
        row = context.make_array(kind)(context, builder)
        populate_array(
            row,
            data=builder.bitcast(room, ir.FloatType().as_pointer()),
            shape=[context.get_constant(types.intp, count)],
            strides=[context.get_constant(types.intp, _NUMBER_BYTES)],
            itemsize=context.get_constant(types.intp, _NUMBER_BYTES),
            meminfo=None,
        )
        return row._getvalue()

    return kind(length), generate
