"""A tile of a matrix product that stays in vector registers: what small matrix products are made of."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# A tile is so many rows by so many columns: 8 registers of sums, and what is left of 16 for the factors.
TILE_ROWS, TILE_COLUMNS = 4, 16
_LANES = 8
_VECTOR = ir.VectorType(ir.FloatType(), _LANES)


def _spread(builder: Any, number: Any) -> Any:
    """A number in all places of a vector."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES))


@intrinsic
def multiply_tile(_context: Any, a: Any, row: Any, b: Any, column: Any, out: Any, to_column: Any) -> Any:
    """The tile of a·b at a row and a column, written to that row of out; the caller answers for the bounds.

    The arrays are contiguous ones of float32.
    """
    signature = types.none(a, row, b, column, out, to_column)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        # asked for by name: whether a product and a sum are fused must not be the optimiser's choice
        fuse = builder.module.declare_intrinsic("llvm.fma.v8f32", (), ir.FunctionType(_VECTOR, [_VECTOR] * 3))
        _, row, _, column, _, to_column = arguments
        a, b, out = (context.make_array(sig.args[i])(context, builder, arguments[i]) for i in (0, 2, 4))
        rows = [builder.add(row, word(i)) for i in range(TILE_ROWS)]

        def place(view: Any, at_row: Any, at_column: Any) -> Any:
            width = builder.extract_value(view.shape, 1)
            return builder.gep(view.data, [builder.add(builder.mul(at_row, width), at_column)])

        def vectors(view: Any, at_row: Any, at_column: Any) -> list[Any]:
            first = place(view, at_row, at_column)
            starts = [builder.gep(first, [word(start)]) for start in range(0, TILE_COLUMNS, _LANES)]
            return [builder.bitcast(start, _VECTOR.as_pointer()) for start in starts]

        before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(word)
        sums = [[builder.phi(_VECTOR) for _ in range(TILE_COLUMNS // _LANES)] for _ in rows]
        right = [builder.load(start, align=4) for start in vectors(b, step, column)]
        for at_row, of_row in zip(rows, sums, strict=True):
            left = _spread(builder, builder.load(place(a, at_row, step)))
            for i, (total, factor) in enumerate(zip(of_row, right, strict=True)):
                of_row[i] = builder.call(fuse, [left, factor, total])
                total.add_incoming(ir.Constant(_VECTOR, [0.0] * _LANES), before)
                total.add_incoming(of_row[i], loop)
        next_step = builder.add(step, word(1))
        step.add_incoming(word(0), before)
        step.add_incoming(next_step, loop)
        builder.cbranch(builder.icmp_signed("<", next_step, builder.extract_value(b.shape, 0)), loop, after)
        builder.position_at_end(after)
        for at_row, of_row in zip(rows, sums, strict=True):
            for total, target in zip(of_row, vectors(out, at_row, to_column), strict=True):
                builder.store(total, target, align=4)
        return context.get_dummy_value()

    return signature, generate
