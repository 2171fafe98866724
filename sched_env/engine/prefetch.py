"""Asking for lines of the cache before they are looked at.

Requests lie in their table where they arrived, and waiting ones in cells, so the processor cannot
guess which come next: with many servers each would be waited for, one after another. Asked for
together, and ahead of time, they come while something else is done. Nothing that is computed
depends on it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sched_env.compiled import compiled_part
from sched_env.engine.keycall import IS_COMPILED
from sched_env.engine.memory import backlog_of, order_of
from sched_env.engine.queue_records import WAITER
from sched_env.engine.records import CACHE_LINE, ENTRY, REQUEST, TRACE

_TRACE_SIZE = TRACE.itemsize
_REQUEST_SIZE = REQUEST.itemsize
_WAITER_SIZE = WAITER.itemsize
_ENTRY_SIZE = ENTRY.itemsize


@intrinsic
def _compiled_fetch(typing_context: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, into_all_caches, of_data = number(0), number(3), number(1)
        where = builder.inttoptr(arguments[0], pointer)
        builder.call(function, [where, to_read, into_all_caches, of_data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _python_fetch(address: int) -> None:
    """Do nothing."""


_fetch: Any = _compiled_fetch if IS_COMPILED else _python_fetch


@compiled_part
def fetch_request(state: Any, row: int) -> None:
    """Ask for a request's row of the table."""
    start = state.requests_at + row * _REQUEST_SIZE
    for offset in range(0, _REQUEST_SIZE, CACHE_LINE):
        _fetch(start + offset)


@compiled_part
def fetch_shown(state: Any, row: int) -> None:
    """Ask for the part of a request's row that tells how it is shown."""
    _fetch(state.requests_at + row * _REQUEST_SIZE)


@compiled_part
def fetch_waiter(state: Any, position: int) -> None:
    """Ask for what is looked at of a waiting request of the front when time has passed."""
    _fetch(state.front_at + order_of(state)[position].cell * _WAITER_SIZE)


@compiled_part
def fetch_cell(state: Any, position: int) -> None:
    """Ask for the cell at a place of the front, which another request is about to take."""
    start = state.front_at + order_of(state)[position].cell * _WAITER_SIZE
    for offset in range(0, _WAITER_SIZE, CACHE_LINE):
        _fetch(start + offset)


@compiled_part
def fetch_free_cell(state: Any) -> None:
    """Ask for the cell that the next request of the front will lie in."""
    fetch_cell(state, min(state.num_front, state.front_size - 1))


@compiled_part
def fetch_next_waiting(state: Any) -> None:
    """Ask for the best request of the backlog, and for the entries that will take its place."""
    if state.num_backlog > 0:
        fetch_request(state, backlog_of(state)[0].row)
        _fetch(state.heaps_at + CACHE_LINE)
        _fetch(state.heaps_at + (state.num_backlog - 1) * _ENTRY_SIZE)


@compiled_part
def fetch_coming(state: Any) -> None:
    """Ask for the next arrival, where it and its deadline will lie, and for the next deadline."""
    _fetch(state.trace_at + (state.trace_row + state.next_row) * _TRACE_SIZE)
    expiries_at = state.heaps_at + state.row_capacity * _ENTRY_SIZE
    _fetch(expiries_at)
    _fetch(expiries_at + state.num_expiries * _ENTRY_SIZE)
    _fetch(expiries_at + (state.num_expiries >> 1) * _ENTRY_SIZE)
    fetch_free_cell(state)
