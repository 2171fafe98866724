"""How numbers without a bound are shown: x / (|x| + half), for one of them and for several at once.

Divisions are what most of an observation waits for. A processor makes four of them in the time of
two if it is told that they are four; what comes out is the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sched_env.compiled import compiled_part
from sched_env.engine.keycall import IS_COMPILED


@compiled_part
def rise(x: float, half: float) -> float:
    """Return x / (|x| + half): 0 at 0, 1/2 at ``half``, towards 1 beyond."""
    return x / (abs(x) + half)


@intrinsic
def _compiled_rises(typing_context: Any, numbers: Any, halves: Any) -> Any:
    count = len(numbers)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width = count + count % 2  # a part that nobody set may be a number that takes long
        index, many = ir.IntType(32), ir.VectorType(ir.DoubleType(), width)
        vectors = []
        for argument in arguments:
            vector = many([1.0] * width)
            for place in range(count):
                number = builder.extract_value(argument, place)
                vector = builder.insert_element(vector, number, index(place))
            vectors.append(vector)
        x, half = vectors
        kind = ir.FunctionType(many, [many])
        name = f"llvm.fabs.v{width}f64"
        size = builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x])
        shown = builder.fdiv(x, builder.fadd(size, half))
        shown = builder.fptrunc(shown, ir.VectorType(ir.FloatType(), width))
        parts = [builder.extract_element(shown, index(place)) for place in range(count)]
        return context.make_tuple(builder, signature.return_type, parts)

    given = types.UniTuple(types.float64, count)
    return types.UniTuple(types.float32, count)(given, given), codegen


def _python_rises(numbers: tuple[float, ...], halves: tuple[float, ...]) -> tuple[Any, ...]:
    return tuple(np.float32(rise(x, half)) for x, half in zip(numbers, halves, strict=True))


rises: Any = _compiled_rises if IS_COMPILED else _python_rises
"""Return :func:`rise` of each of a tuple of numbers, with a tuple of halves, as float32."""
