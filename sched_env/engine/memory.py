"""A server's arrays, reached from its state record.

The functions of the core pass one record, ``state``, by pointer. It knows where the server's arrays
lie: :func:`aim` writes the addresses down at each entry into compiled code, and an accessor such as
``running_of(state)`` makes the array again, without an owner. So a call costs one argument, and
nothing is counted; numba counts references to arrays with atomic instructions that would cost
a step more than its arithmetic.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from sched_env.compiled import compiled_part
from sched_env.cost.step_time import COST
from sched_env.engine.keycall import IS_COMPILED
from sched_env.engine.layout import FUTURE, GLOBALS, SLOT
from sched_env.engine.records import BLOCK, ENTRY, EVENT, REQUEST, SEGMENT, TRACE, Arrays
from sched_env.workload.service_classes import SERVICE_CLASS

_REQUEST_SIZE = REQUEST.itemsize
_ENTRY_SIZE = ENTRY.itemsize
_EVENT_SIZE = EVENT.itemsize
_BLOCK_SIZE = BLOCK.itemsize
_INT64_SIZE = 8
_SLOT_SIZE = SLOT.itemsize
_GLOBALS_SIZE = GLOBALS.itemsize


def _array_at(dtype: Any) -> Any:
    """Return a function that makes the array of ``dtype`` at an address, of a given length."""
    dtype = np.dtype(dtype)
    if not IS_COMPILED:
        return lambda address, count: _python_array_at(dtype, int(address), int(count))
    item = numba.from_dtype(dtype)
    array_type = types.Array(item, 1, "C")

    @intrinsic
    def array_at(typing_context: Any, address: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(array_type)(context, builder)
            data = builder.inttoptr(arguments[0], context.get_data_type(item).as_pointer())
            size = context.get_constant(types.intp, dtype.itemsize)
            shape = cgutils.pack_array(builder, [arguments[1]])
            strides = cgutils.pack_array(builder, [size])
            populate_array(array, data, shape, strides, size, None)
            return array._getvalue()

        return array_type(types.int64, types.int64), codegen

    return array_at


def _python_array_at(dtype: np.dtype[Any], address: int, count: int) -> Any:
    if count == 0:
        return np.zeros(0, dtype)
    memory: Any = (ctypes.c_byte * (count * dtype.itemsize)).from_address(address)
    array = np.frombuffer(memory, dtype)
    return array.view(np.recarray) if dtype.names else array


def _record_at(dtype: np.dtype[Any]) -> Any:
    """Return a function that gives the record at an address."""
    if not IS_COMPILED:
        return lambda address: _python_array_at(dtype, int(address), 1)[0]
    record_type = numba.from_dtype(dtype)

    @intrinsic
    def record_at(typing_context: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(record_type))

        return record_type(types.int64), codegen

    return record_at


_cost_at = _record_at(COST)
_classes_at = _array_at(SERVICE_CLASS)
_trace_at = _array_at(TRACE)
_segments_at = _array_at(SEGMENT)
_requests_at = _array_at(REQUEST)
_entries_at = _array_at(ENTRY)
_events_at = _array_at(EVENT)
_blocks_at = _array_at(BLOCK)
_integers_at = _array_at(np.int64)
_flags_at = _array_at(np.int8)
_slots_at = _array_at(SLOT)
_globals_at = _record_at(GLOBALS)
_future_at = _record_at(FUTURE)


@compiled_part
def aim(state: Any, arrays: Arrays, index: int) -> None:
    """Write down where the arrays of server ``index`` lie; ``state`` is its record."""
    seats, rows = state.seat_capacity, state.row_capacity
    slots = arrays.slots.ctypes.data + index * arrays.slots.shape[1] * _REQUEST_SIZE
    heaps = arrays.heaps.ctypes.data + index * arrays.heaps.shape[1] * _ENTRY_SIZE
    scratch = arrays.scratch.ctypes.data + index * arrays.scratch.shape[1] * _INT64_SIZE
    state.cost_at = arrays.cost.ctypes.data
    state.classes_at = arrays.classes.ctypes.data
    state.num_classes = arrays.classes.size
    state.trace_at = arrays.trace.ctypes.data
    state.num_trace_rows = arrays.trace.size
    state.segments_at = arrays.segments.ctypes.data
    state.num_segments = arrays.segments.size
    state.front_at = slots
    state.admitted_at = slots + state.front_size * _REQUEST_SIZE
    state.running_at = state.admitted_at + seats * _REQUEST_SIZE
    state.requests_at = state.running_at + seats * _REQUEST_SIZE
    state.backlog_at = heaps
    state.expiries_at = heaps + rows * _ENTRY_SIZE
    state.events_at = arrays.events.ctypes.data + index * arrays.events.shape[1] * _EVENT_SIZE
    state.event_capacity = arrays.events.shape[1]
    state.growth_at = scratch
    state.stale_at = scratch + state.block_size * _INT64_SIZE
    state.itl_counts_at = state.stale_at + seats * _INT64_SIZE
    state.num_itl_bins = arrays.scratch.shape[1] - state.block_size - seats
    if state.enable_prefix_caching:
        _aim_pool(state, arrays, index)


@compiled_part
def _aim_pool(state: Any, arrays: Arrays, index: int) -> None:
    tables = arrays.tables.ctypes.data + index * arrays.tables.shape[1] * _INT64_SIZE
    state.blocks_at = arrays.blocks.ctypes.data + index * arrays.blocks.shape[1] * _BLOCK_SIZE
    state.buckets_at = tables
    state.free_tables_at = tables + state.num_buckets * _INT64_SIZE
    state.tables_at = state.free_tables_at + state.seat_capacity * _INT64_SIZE
    state.hash_ids_at = arrays.hash_ids.ctypes.data
    state.num_hash_ids = arrays.hash_ids.size


@compiled_part
def aim_outputs(state: Any, observations: Any, masks: Any, index: int) -> None:
    """Write down where the observation and the mask of server ``index`` go.

    Args:
        state: The server.
        observations: float32 (N, size), C-contiguous.
        masks: int8 (N, L + K + J), C-contiguous.
        index: Which server it is.
    """
    width = observations.shape[1] * observations.itemsize
    state.observation_at = observations.ctypes.data + index * width
    state.mask_at = masks.ctypes.data + index * masks.shape[1]
    state.num_actions = masks.shape[1]


@compiled_part
def cost_of(state: Any) -> Any:
    """Return the step-time model, a COST record."""
    return _cost_at(state.cost_at)


@compiled_part
def classes_of(state: Any) -> Any:
    """Return the service classes, SERVICE_CLASS (num_classes,)."""
    return _classes_at(state.classes_at, state.num_classes)


@compiled_part
def trace_of(state: Any) -> Any:
    """Return the trace, TRACE (num_trace_rows,), shared by all servers."""
    return _trace_at(state.trace_at, state.num_trace_rows)


@compiled_part
def segments_of(state: Any) -> Any:
    """Return the pieces of the trace that episodes come from, SEGMENT (num_segments,)."""
    return _segments_at(state.segments_at, state.num_segments)


@compiled_part
def front_of(state: Any) -> Any:
    """Return the first waiting requests by value, in service order, REQUEST (front_size,)."""
    return _requests_at(state.front_at, state.front_size)


@compiled_part
def admitted_of(state: Any) -> Any:
    """Return the requests chosen to run but not scheduled yet, REQUEST (seat_capacity,)."""
    return _requests_at(state.admitted_at, state.seat_capacity)


@compiled_part
def running_of(state: Any) -> Any:
    """Return the running requests by value, in batch order, REQUEST (seat_capacity,)."""
    return _requests_at(state.running_at, state.seat_capacity)


@compiled_part
def requests_of(state: Any) -> Any:
    """Return the table of all requests, one row each, REQUEST (row_capacity,)."""
    return _requests_at(state.requests_at, state.row_capacity)


@compiled_part
def backlog_of(state: Any) -> Any:
    """Return the waiting requests behind the front, a heap in service order, ENTRY."""
    return _entries_at(state.backlog_at, state.row_capacity)


@compiled_part
def expiries_of(state: Any) -> Any:
    """Return the coming deadlines, a heap by time, ENTRY."""
    return _entries_at(state.expiries_at, 3 * state.row_capacity + state.seat_capacity)


@compiled_part
def events_of(state: Any) -> Any:
    """Return the event log, EVENT (event_capacity,); empty if events are not recorded."""
    return _events_at(state.events_at, state.event_capacity)


@compiled_part
def growth_of(state: Any) -> Any:
    """Return the scratch of the jump-ahead, int64 (block_size,)."""
    return _integers_at(state.growth_at, state.block_size)


@compiled_part
def stale_of(state: Any) -> Any:
    """Return the rows of preempted requests with a token in flight, int64 (seat_capacity,)."""
    return _integers_at(state.stale_at, state.seat_capacity)


@compiled_part
def blocks_of(state: Any) -> Any:
    """Return the KV blocks, BLOCK (num_blocks + 1,); the last is the end of the free list."""
    return _blocks_at(state.blocks_at, state.num_blocks + 1)


@compiled_part
def buckets_of(state: Any) -> Any:
    """Return the first known block of each hash bucket, int64 (num_buckets,)."""
    return _integers_at(state.buckets_at, state.num_buckets)


@compiled_part
def free_tables_of(state: Any) -> Any:
    """Return the stack of block tables that nobody uses, int64 (seat_capacity,)."""
    return _integers_at(state.free_tables_at, state.seat_capacity)


@compiled_part
def table_of(state: Any, index: int) -> Any:
    """Return block table ``index``, int64 (num_blocks,)."""
    return _integers_at(state.tables_at + index * state.num_blocks * _INT64_SIZE, state.num_blocks)


@compiled_part
def hash_ids_of(state: Any) -> Any:
    """Return the ids of all prompts' content, int64 (num_hash_ids,)."""
    return _integers_at(state.hash_ids_at, state.num_hash_ids)


@compiled_part
def itl_counts_of(state: Any) -> Any:
    """Return the counts of inter-token latencies, int64 (num_itl_bins,)."""
    return _integers_at(state.itl_counts_at, state.num_itl_bins)


@compiled_part
def mask_of(state: Any) -> Any:
    """Return the mask of legal actions, int8 (L + K + J,)."""
    return _flags_at(state.mask_at, state.num_actions)


@compiled_part
def slots_in(state: Any) -> Any:
    """Return the slots of the observation, SLOT (K + J,)."""
    count = state.num_waiting_slots + state.num_running_slots
    return _slots_at(state.observation_at, count)


@compiled_part
def globals_in(state: Any) -> Any:
    """Return the global features of the observation, a GLOBALS record."""
    count = state.num_waiting_slots + state.num_running_slots
    return _globals_at(state.observation_at + count * _SLOT_SIZE)


@compiled_part
def future_in(state: Any) -> Any:
    """Return the privileged features of the observation, a FUTURE record."""
    count = state.num_waiting_slots + state.num_running_slots
    return _future_at(state.observation_at + count * _SLOT_SIZE + _GLOBALS_SIZE)
