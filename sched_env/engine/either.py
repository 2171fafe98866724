"""A choice between two numbers without a branch, for where a processor cannot foresee it."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from sched_env.engine.keycall import IS_COMPILED


@intrinsic
def _compiled_either(typing_context: Any, condition: Any, one: Any, other: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chosen = builder.select(*arguments)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return types.float64(types.boolean, types.float64, types.float64), codegen


def _python_either(condition: bool, one: float, other: float) -> float:
    return one if condition else other


either: Any = _compiled_either if IS_COMPILED else _python_either
"""Return the first of two numbers if a condition holds, else the second; both are known."""
