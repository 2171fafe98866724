"""A compiled loop around either core: actions are drawn and servers stepped, nothing else."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.experimental.function_type import _get_jit_address
from numba.extending import intrinsic
from numpy.typing import NDArray

from c_core import library
from sched_env.cli.speed import draw_legal
from sched_env.engine import kernels
from sched_env.engine.outlet import TERMINATED, TRUNCATED
from sched_env.engine.world import World

_STEP_SIGNATURE = types.int64(
    types.int64,
    types.int64,
    types.int64,
    types.Array(types.int64, 1, "C"),
    types.Array(types.float32, 2, "C"),
    types.Array(types.int8, 2, "C"),
    types.Array(types.float64, 2, "C"),
)
_STEP_TYPE = types.FunctionType(_STEP_SIGNATURE)
_NUM_C_ARGUMENTS = 9


@intrinsic
def _numba_step_at(typing_context: Any, address: Any) -> Any:
    """Return the compiled step at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.create_struct_proxy(_STEP_TYPE)(context, builder)
        function.c_addr = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        function.py_addr = cgutils.get_null_value(cgutils.voidptr_t)
        function.jit_addr = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        return function._getvalue()

    return _STEP_TYPE(types.int64), codegen


@intrinsic
def _call_c(typing_context: Any, address: Any, numbers: Any) -> Any:
    """Call the C step at an address with a tuple of 64-bit numbers."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word] * _NUM_C_ARGUMENTS)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.call(function, cgutils.unpack_tuple(builder, arguments[1]))

    return types.int64(types.int64, types.UniTuple(types.int64, _NUM_C_ARGUMENTS)), codegen


@numba.njit(error_model="numpy")
def _drive(
    is_c: bool,
    step_at: int,
    address: int,
    draws: NDArray[np.float64],
    first: int,
    actions: NDArray[np.int64],
    observations: NDArray[np.float32],
    masks: NDArray[np.int8],
    results: NDArray[np.float64],
) -> int:
    """Step all servers by ``draws[first:]`` until an episode ends; return the next draw."""
    step, count = _numba_step_at(step_at), len(actions)
    place = first
    while place < len(draws):
        draw_legal(masks, draws[place], actions)
        place += 1
        if is_c:
            numbers = (
                address,
                0,
                count,
                actions.ctypes.data,
                observations.ctypes.data,
                observations.shape[1],
                masks.ctypes.data,
                masks.shape[1],
                results.ctypes.data,
            )
            num_flags = _call_c(step_at, numbers)
        else:
            num_flags = step(address, 0, count, actions, observations, masks, results)
        if num_flags != 0:
            break
    return place


def _step_address(is_c: bool) -> int:
    if is_c:
        address = ctypes.cast(library.core().step_batch, ctypes.c_void_p).value
        assert address is not None
        return address
    kernels.step_batch.compile(_STEP_SIGNATURE.args)
    return _get_jit_address(kernels.step_batch, _STEP_SIGNATURE)


class Driver:
    """A world under random legal actions, stepped by one of the two cores.

    Args:
        world: What :func:`library.check_world` lets pass; its episodes begin anew.
        is_c: Whether C steps it, or else numba.
        seed: Of the actions: drivers of equal worlds and equal seeds do the same.
    """

    def __init__(self, world: World, *, is_c: bool, seed: int = 0) -> None:
        library.check_world(world)
        self._world, self._is_c = world, is_c
        self._step_at = _step_address(is_c)
        self._buffers = world.buffers()
        self._actions = np.zeros(world.num_servers, np.int64)
        self._rng = np.random.default_rng(seed)
        world.reset(*self._buffers[:2])

    def run(self, num_steps: int) -> float:
        """Take ``num_steps`` decisions in each server; return the processor time in seconds.

        The time is that of the compiled loop alone; ended episodes start anew outside it.
        """
        draws = self._rng.random((num_steps, self._world.num_servers))
        place, spent_s = 0, 0.0
        while place < num_steps:
            began_s = time.process_time()
            place = _drive(
                self._is_c,
                self._step_at,
                self._world.address,
                draws,
                place,
                self._actions,
                *self._buffers,
            )
            spent_s += time.process_time() - began_s
            self._restart()
        return spent_s

    def _restart(self) -> None:
        observations, masks, results = self._buffers
        over = (results[TERMINATED] > 0) | (results[TRUNCATED] > 0)
        if over.any():
            self._world.state["episode"][over] += 1
            self._world.reset(observations, masks, chosen=over)
            results[:] = 0.0
