"""A server's arrays, reached from its state record.

The functions of the core pass one record, ``state``, by pointer. It knows where the server's arrays
lie: :func:`aim` writes the addresses down at each entry into compiled code, and an accessor such as
``running_of(state)`` makes the array again, without an owner. So a call costs one argument, and
nothing is counted; numba counts references to arrays with atomic instructions that would cost
a step more than its arithmetic. For the same reason a world crosses the border between Python and
compiled code as one number, the address of its MEMORY record.
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
from sched_env.engine.outlet import NUM_RESULTS, OUTLET
from sched_env.engine.queue_records import LANE, MOST_LANES, PLACE, WAITER
from sched_env.engine.records import (
    BLOCK,
    ENTRY,
    EVENT,
    MEMORY,
    REQUEST,
    SEAT,
    SEGMENT,
    SERVER,
    TRACE,
)
from sched_env.workload.service_classes import SERVICE_CLASS

_ENTRY_SIZE = ENTRY.itemsize
_INT64_SIZE = 8
_SLOT_SIZE = SLOT.itemsize
_FEATURE_SIZE = np.dtype(np.float32).itemsize
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


_memory_at = _record_at(MEMORY)
_outlet_at = _record_at(OUTLET)
_servers_at = _array_at(SERVER)
_cost_at = _record_at(COST)
_classes_at = _array_at(SERVICE_CLASS)
_trace_at = _array_at(TRACE)
_segments_at = _array_at(SEGMENT)
_requests_at = _array_at(REQUEST)
_seats_at = _array_at(SEAT)
_waiters_at = _array_at(WAITER)
_places_at = _array_at(PLACE)
_entries_at = _array_at(ENTRY)
_lanes_at = _array_at(LANE)
_events_at = _array_at(EVENT)
_blocks_at = _array_at(BLOCK)
_integers_at = _array_at(np.int64)
_flags_at = _array_at(np.int8)
_floats_at = _array_at(np.float64)
_features_at = _array_at(np.float32)
_slots_at = _array_at(SLOT)
_globals_at = _record_at(GLOBALS)
_future_at = _record_at(FUTURE)


@compiled_part
def memory_at(address: int) -> Any:
    """Return the MEMORY record at an address."""
    return _memory_at(address)


@compiled_part
def server_of(memory: Any, index: int) -> Any:
    """Return the record of server ``index``, which knows where its arrays lie."""
    state = _servers_at(memory.state_at, memory.num_servers)[index]
    aim(state, memory, index)
    return state


@compiled_part
def aim(state: Any, memory: Any, index: int) -> None:
    """Write down where the arrays of server ``index`` lie; ``state`` is its record."""
    state.cost_at = memory.cost_at
    state.classes_at = memory.classes_at
    state.num_classes = memory.num_classes
    state.trace_at = memory.trace_at
    state.num_trace_rows = memory.num_trace_rows
    state.segments_at = memory.segments_at
    state.num_segments = memory.num_segments
    state.requests_at = memory.requests_at + index * memory.requests_bytes
    state.seats_at = memory.seats_at + index * memory.seats_bytes
    state.front_at = memory.front_at + index * memory.front_bytes
    state.order_at = memory.order_at + index * memory.order_bytes
    state.heaps_at = memory.heaps_at + index * memory.heaps_bytes
    state.events_at = memory.events_at + index * memory.events_bytes
    state.event_capacity = memory.event_capacity
    state.scratch_at = memory.scratch_at + index * memory.scratch_bytes
    state.num_itl_bins = memory.num_itl_bins
    if state.may_have_lanes:
        state.lanes_at = memory.lanes_at + index * memory.lanes_bytes
        state.lane_key_at = memory.lane_key_at
        state.lane_key_jit_at = memory.lane_key_jit_at
    if state.enable_prefix_caching:
        state.blocks_at = memory.blocks_at + index * memory.blocks_bytes
        state.tables_at = memory.tables_at + index * memory.tables_bytes
        state.hash_ids_at = memory.hash_ids_at
        state.num_hash_ids = memory.num_hash_ids


@compiled_part
def outputs_of(observations: Any, masks: Any) -> tuple[int, int, int, int]:
    """Return where the first observation and the first mask lie, and the bytes of each.

    Numba counts references to an array whose address is asked for: once a call, not once a server.

    Args:
        observations: float32 (N, size), C-contiguous.
        masks: int8 (N, L + K + J), C-contiguous.
    """
    width = observations.shape[1] * observations.itemsize
    return observations.ctypes.data, width, masks.ctypes.data, masks.shape[1]


@compiled_part
def aim_outputs(state: Any, outputs: tuple[int, int, int, int], index: int) -> None:
    """Write down where the observation and the mask of server ``index`` go.

    ``outputs`` is what :func:`outputs_of` or :func:`outputs_in` returned.
    """
    observations_at, width, masks_at, num_actions = outputs
    state.observation_at = observations_at + index * width
    state.mask_at = masks_at + index * num_actions
    state.num_actions = num_actions


@compiled_part
def outlet_at(address: int) -> Any:
    """Return the OUTLET record at an address."""
    return _outlet_at(address)


@compiled_part
def outputs_in(outlet: Any) -> tuple[int, int, int, int]:
    """Return of an outlet what :func:`outputs_of` returns of arrays."""
    width = outlet.num_observed * _FEATURE_SIZE
    return outlet.observation_at, width, outlet.mask_at, outlet.num_actions


@compiled_part
def copy_outlet(outlet: Any, observation_at: int, mask_at: int) -> None:
    """Copy the observation and the mask of an outlet to other addresses."""
    observation = _features_at(outlet.observation_at, outlet.num_observed)
    observation_copy = _features_at(observation_at, outlet.num_observed)
    for i in range(outlet.num_observed):
        observation_copy[i] = observation[i]
    mask = _flags_at(outlet.mask_at, outlet.num_actions)
    mask_copy = _flags_at(mask_at, outlet.num_actions)
    for i in range(outlet.num_actions):
        mask_copy[i] = mask[i]


@compiled_part
def results_at(address: int, num_servers: int) -> Any:
    """Return the step results at an address, float64 (6 N,): those of all servers, one by one."""
    return _floats_at(address, NUM_RESULTS * num_servers)


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
def requests_of(state: Any) -> Any:
    """Return the table of all requests, one row each, REQUEST (row_capacity,)."""
    return _requests_at(state.requests_at, state.row_capacity)


@compiled_part
def requests_at(address: int, count: int) -> Any:
    """Return the table of requests that lies at an address, REQUEST (count,)."""
    return _requests_at(address, count)


@compiled_part
def running_of(state: Any) -> Any:
    """Return the running requests, in batch order, SEAT (seat_capacity + 1,).

    The last one is free: a place to put a request while others move.
    """
    return _seats_at(state.seats_at, state.seat_capacity + 1)


@compiled_part
def front_of(state: Any) -> Any:
    """Return the cells of the first waiting requests, in no order, WAITER (front_size,)."""
    return _waiters_at(state.front_at, state.front_size)


@compiled_part
def order_of(state: Any) -> Any:
    """Return the places in service order, then those of free cells, PLACE (front_size,)."""
    return _places_at(state.order_at, state.front_size)


@compiled_part
def waiter_at(state: Any, position: int) -> Any:
    """Return the cell of the waiting request at a position of the front, WAITER."""
    return front_of(state)[order_of(state)[position].cell]


@compiled_part
def admitted_of(state: Any) -> Any:
    """Return the rows of requests chosen to run and not scheduled yet, int64 (seat_capacity,)."""
    return _integers_at(state.scratch_at, state.seat_capacity)


@compiled_part
def growth_of(state: Any) -> Any:
    """Return how many decodes need a block for each of the next tokens, int64 (block_size,).

    The next token is that of ``cohort_place``, the ones after it follow, in a ring.
    """
    before = state.seat_capacity
    return _integers_at(state.scratch_at + before * _INT64_SIZE, state.block_size)


@compiled_part
def stale_of(state: Any) -> Any:
    """Return the rows of preempted requests with a token in flight, int64 (seat_capacity,)."""
    before = state.seat_capacity + state.block_size
    return _integers_at(state.scratch_at + before * _INT64_SIZE, state.seat_capacity)


@compiled_part
def itl_counts_of(state: Any) -> Any:
    """Return the counts of inter-token latencies, int64 (num_itl_bins,)."""
    before = 2 * state.seat_capacity + state.block_size
    return _integers_at(state.scratch_at + before * _INT64_SIZE, state.num_itl_bins)


@compiled_part
def blocks_of(state: Any) -> Any:
    """Return the KV blocks, BLOCK (num_blocks + 1,); the last is the end of the free list."""
    return _blocks_at(state.blocks_at, state.num_blocks + 1)


@compiled_part
def buckets_of(state: Any) -> Any:
    """Return the first known block of each hash bucket, int64 (num_buckets,)."""
    return _integers_at(state.tables_at, state.num_buckets)


@compiled_part
def free_tables_of(state: Any) -> Any:
    """Return the stack of block tables that nobody uses, int64 (seat_capacity,)."""
    before = state.num_buckets
    return _integers_at(state.tables_at + before * _INT64_SIZE, state.seat_capacity)


@compiled_part
def table_of(state: Any, index: int) -> Any:
    """Return block table ``index``, int64 (num_blocks,)."""
    before = state.num_buckets + state.seat_capacity + index * state.num_blocks
    return _integers_at(state.tables_at + before * _INT64_SIZE, state.num_blocks)


@compiled_part
def hash_ids_of(state: Any) -> Any:
    """Return the ids of all prompts' content, int64 (num_hash_ids,)."""
    return _integers_at(state.hash_ids_at, state.num_hash_ids)


@compiled_part
def backlog_of(state: Any) -> Any:
    """Return the waiting requests behind the front, a heap in service order, ENTRY."""
    return _entries_at(state.heaps_at, state.row_capacity)


@compiled_part
def lanes_of(state: Any) -> Any:
    """Return the lanes of waiting requests, LANE (MOST_LANES,)."""
    return _lanes_at(state.lanes_at, MOST_LANES)


@compiled_part
def expiries_of(state: Any) -> Any:
    """Return the coming deadlines, a heap by time, ENTRY."""
    rows = state.row_capacity
    return _entries_at(state.heaps_at + rows * _ENTRY_SIZE, 3 * rows + state.seat_capacity)


@compiled_part
def events_of(state: Any) -> Any:
    """Return the event log, EVENT (event_capacity,); empty if events are not recorded."""
    return _events_at(state.events_at, state.event_capacity)


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
