"""The arrays of a world: how large they are, how records lie in them, and where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine.keycall import IS_COMPILED
from sched_env.engine.queue_records import PLACE, WAITER
from sched_env.engine.records import (
    CACHE_LINE,
    ENTRY,
    MEMORY,
    ONE_TIME_EVENTS,
    REQUEST,
    SEAT,
    SEGMENT,
    Arrays,
)

_FRONT_SIZE = 32
_FRONT_OF_HEAD = 4  # where only the head matters
_FRONT_SPARE = 8  # places beyond those shown, at least


def as_records(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` as the core takes it.

    Plain Python reads fields as attributes only of a recarray; compiled code takes a plain array
    faster.
    """
    return array.view(np.ndarray if IS_COMPILED else np.recarray)


def records_of(count: int | tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeroed records that begin with a line of the cache."""
    size = int(np.prod(count)) * dtype.itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return as_records(memory[start : start + size].view(dtype).reshape(count))


def whole_trace(trace: NDArray[Any]) -> NDArray[Any]:
    """Return the one segment that spans a trace at its recorded rate, SEGMENT (1,)."""
    segment = records_of(1, SEGMENT)
    segment["end_row"] = len(trace)
    segment["end_s"] = trace["arrival_time_s"][-1] if len(trace) else 0.0
    segment["interval_scale"] = 1.0
    return segment


def num_seats(state: Any, row_capacity: int) -> int:
    """Return the most requests that can run: ``max_num_seqs``, but no more than there are."""
    return min(int(state["max_num_seqs"]), row_capacity)


def num_looked_at(state: Any) -> int:
    """Return the places of the front at which a scheduler looks for an admission.

    Where nobody is shown, and nobody but the head may be admitted, a few are enough: what moves up
    for each admission is less.
    """
    looks_further = state["skip_ahead"] or state["async_scheduling"] or state["preemptive_priority"]
    shown = int(state["num_waiting_slots"])
    if shown == 0 and not looks_further:
        return _FRONT_OF_HEAD
    return max(_FRONT_SIZE, _FRONT_SPARE + shown)


def front_size(state: Any) -> int:
    """Return the places of the front.

    With ``preemptive_priority`` all who wait lie there: a victim that comes back must not push out
    whom it made room for.
    """
    every_row = int(state["row_capacity"]) if state["preemptive_priority"] else 0
    return max(int(state["num_looked_at"]), every_row)


def event_reserve(state: Any) -> int:
    """Return the room in the event log that one iteration may need, whatever happens in it.

    The running requests may be preempted, and as many admitted. With ``preemptive_priority`` each
    live request may, in the order of the queue, be admitted and evicted, and that once again.
    """
    rows, seats = int(state["row_capacity"]), int(state["seat_capacity"])
    evictions = 4 * rows if state["preemptive_priority"] else 0
    return ONE_TIME_EVENTS * rows + 2 * seats + evictions


def sized_by_capacity(num_servers: int, state: Any, num_bins: int) -> dict[str, NDArray[Any]]:
    """Return the arrays whose sizes the most requests and seats decide, zeroed."""
    rows, seats = int(state["row_capacity"]), int(state["seat_capacity"])
    numbers = 2 * seats + int(state["block_size"]) + num_bins
    return {
        "requests": records_of((num_servers, rows), REQUEST),
        "seats": records_of((num_servers, seats + 1), SEAT),
        "front": records_of((num_servers, int(state["front_size"])), WAITER),
        "order": records_of((num_servers, int(state["front_size"])), PLACE),
        "heaps": records_of((num_servers, 4 * rows + seats), ENTRY),
        "scratch": np.zeros((num_servers, numbers), np.int64),
    }


def num_buckets(state: Any) -> int:
    """Return a power of two, at least the number of blocks."""
    return 1 << int(state["num_blocks"]).bit_length() if state["enable_prefix_caching"] else 0


def num_known_blocks(state: Any) -> int:
    """Return the blocks that prefix caching keeps records of, and the end of their free list."""
    return int(state["num_blocks"]) + 1 if state["enable_prefix_caching"] else 0


def num_table_entries(state: Any) -> int:
    """Return the numbers that hash buckets and block tables of prefix caching take."""
    if not state["enable_prefix_caching"]:
        return 0
    seats = int(state["seat_capacity"])
    return num_buckets(state) + seats * (1 + int(state["num_blocks"]))


def memory_of(
    arrays: Arrays,
    num_bins: int,
    key_addresses: tuple[int, int],
    lane_addresses: tuple[int, int],
) -> NDArray[Any]:
    """Return where arrays, a key function and that of its lanes lie, MEMORY (1,)."""
    memory = np.zeros(1, MEMORY)
    for name, array in arrays._asdict().items():
        memory[f"{name}_at"] = array.ctypes.data
        memory[f"{name}_bytes"] = array.strides[0]
    memory["num_servers"] = len(arrays.state)
    memory["num_classes"] = len(arrays.classes)
    memory["num_trace_rows"] = len(arrays.trace)
    memory["num_segments"] = len(arrays.segments)
    memory["num_hash_ids"] = len(arrays.hash_ids)
    memory["event_capacity"] = arrays.events.shape[1]
    memory["num_itl_bins"] = num_bins
    memory["key_at"], memory["key_jit_at"] = key_addresses
    memory["lane_key_at"], memory["lane_key_jit_at"] = lane_addresses
    return memory
