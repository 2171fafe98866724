"""Calling key functions that were compiled elsewhere, by address.

A key function orders requests: ``key(request, now_s) -> (float, float)``, smaller first, where
``request`` is a REQUEST record. Kernels take its two addresses as plain integers, which costs
nothing at the border between Python and compiled code (a first-class function costs 80 us there).
Where numba is disabled, the address is an index into a list of Python functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.experimental.function_type import _get_jit_address, _get_wrapper_address
from numba.extending import intrinsic

from sched_env.engine.records import REQUEST

KEY_SIGNATURE = types.UniTuple(types.float64, 2)(numba.from_dtype(REQUEST), types.float64)
_KEY_TYPE = types.FunctionType(KEY_SIGNATURE)
IS_COMPILED = not numba.config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
"""False with ``NUMBA_DISABLE_JIT=1``: then the core runs as plain Python."""

_python_keys: list[Callable[..., tuple[float, float]]] = []


def register_key(function: Callable[..., tuple[float, float]]) -> tuple[int, int]:
    """Return the addresses by which kernels call ``function``.

    Args:
        function: A numba dispatcher that accepts :data:`KEY_SIGNATURE`. It must stay alive as
            long as its addresses are used. With ``NUMBA_DISABLE_JIT=1``, a Python function.
    """
    if not IS_COMPILED:
        if function not in _python_keys:
            _python_keys.append(function)
        return _python_keys.index(function), 0
    return (
        _get_wrapper_address(function, KEY_SIGNATURE),
        _get_jit_address(function, KEY_SIGNATURE),
    )


@intrinsic
def _compiled_key_at(typing_context: Any, wrapper_address: Any, jit_address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.create_struct_proxy(_KEY_TYPE)(context, builder)
        function.c_addr = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        function.py_addr = cgutils.get_null_value(cgutils.voidptr_t)
        function.jit_addr = builder.inttoptr(arguments[1], cgutils.voidptr_t)
        return function._getvalue()

    return _KEY_TYPE(types.int64, types.int64), codegen


def _python_key_at(wrapper_address: int, jit_address: int) -> Any:
    return _python_keys[wrapper_address]


key_at: Any = _compiled_key_at if IS_COMPILED else _python_key_at
"""``key_at(wrapper_address, jit_address)`` is the key function at those addresses."""
