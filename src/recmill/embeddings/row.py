"""Room for a row on the stack of a kernel.

Of two arrays, LLVM never knows that they do not overlap, and then works number by number. Of a place on the stack it
does: a loop from an array into such a row, over such rows, or back into an array becomes vector instructions, and a row
that is small enough never leaves the registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


@intrinsic(prefer_literal=True)
def row_on_stack(_context: Any, length: Any) -> Any:
    """A new row of so many float32, a constant of the kernel, with whatever is in it."""
    kind = types.Array(types.float32, 1, "C")

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        number = ir.FloatType()
        room = cgutils.alloca_once(builder, ir.ArrayType(number, max(1, length.literal_value)))
        row = context.make_array(kind)(context, builder)
        word = context.get_constant
        populate_array(
            row,
            data=builder.bitcast(room, number.as_pointer()),
            shape=[word(types.intp, length.literal_value)],
            strides=[word(types.intp, 4)],
            itemsize=word(types.intp, 4),
            meminfo=None,
        )
        return row._getvalue()

    return kind(length), generate
