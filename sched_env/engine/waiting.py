"""Waiting requests in service order.

The best ``front_size`` of them lie by value and sorted in ``front``; the rest are rows in a heap
(``backlog``). Nothing in the backlog precedes anything in the front, and the front is full unless
the backlog is empty. Putting one in or taking one out costs O(front_size + log n).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.engine.features import rest
from sched_env.engine.heap import drop_top, precedes, push
from sched_env.engine.memory import backlog_of, front_of, requests_of
from sched_env.engine.pool import cached_blocks
from sched_env.engine.records import PREEMPTED, WAITING
from sched_env.engine.reward import settle_waiting
from sched_env.engine.sizes import blocks_for, decode_tokens_left, num_tokens


@compiled_part
def enqueue(state: Any, key: Any, request: Any) -> None:
    """Let ``request`` wait, at the place that ``key`` gives it.

    ``request`` may be any record outside ``front``; it is copied. A preempted request comes back
    by the same rule as a new one: under fcfs its key is its arrival number, which is smaller than
    that of every request that never ran, so it stands at the head.
    """
    settle_waiting(state)
    state.num_waiting += 1
    count_in(state, request)
    _set_key(state, key, request)
    request.passes_waited = 0
    request.times_passed = 0
    prepare_to_wait(state, request)
    _place(state, request)


@compiled_part
def _set_key(state: Any, key: Any, request: Any) -> None:
    """Give a request its place in the order; with ``resume_first`` preempted ones come first."""
    request.key, request.second_key = key(request, state.clock_s)
    if state.resume_first and request.status == PREEMPTED:
        request.second_key = request.key
        request.key = -np.inf


@compiled_part
def count_in(state: Any, request: Any) -> None:
    """Add a waiting request to the sums over all of them."""
    state.waiting_weight += request.weight
    state.waiting_prefill_tokens += num_tokens(request)
    state.waiting_decode_tokens += decode_tokens_left(request)


@compiled_part
def count_out(state: Any, request: Any) -> None:
    """Take a waiting request out of the sums over all of them."""
    state.waiting_weight -= request.weight
    state.waiting_prefill_tokens -= num_tokens(request)
    state.waiting_decode_tokens -= decode_tokens_left(request)


@compiled_part
def prepare_to_wait(state: Any, request: Any) -> None:
    """Note what rests while a request waits."""
    request.whole_blocks = blocks_for(num_tokens(request), state.block_size)
    if state.num_waiting_slots > 0:
        rest(state, request)


@compiled_part
def _place(state: Any, request: Any) -> None:
    if state.num_front == state.front_size:
        last = front_of(state)[state.num_front - 1]
        if not precedes(request, last):
            _push_back(state, request)
            return
        _push_back(state, last)
        state.num_front -= 1
    position = state.num_front
    while position > 0 and precedes(request, front_of(state)[position - 1]):
        front_of(state)[position] = front_of(state)[position - 1]
        position -= 1
    front_of(state)[position] = request
    state.num_front += 1


@compiled_part
def _push_back(state: Any, request: Any) -> None:
    requests_of(state)[request.row] = request
    push(
        backlog_of(state),
        state.num_backlog,
        request.key,
        request.second_key,
        request.tie,
        request.row,
    )
    state.num_backlog += 1


@compiled_part
def dequeue(state: Any, position: int) -> None:
    """Take ``front[position]`` out of the waiting ones; the caller has copied it."""
    leave(state, front_of(state)[position])
    state.num_front -= 1
    for i in range(position, state.num_front):
        front_of(state)[i] = front_of(state)[i + 1]
    _refill(state)


@compiled_part
def leave(state: Any, request: Any) -> None:
    """Count ``request`` out of the waiting ones (one in the backlog stays there as a husk)."""
    settle_waiting(state)
    state.num_waiting -= 1
    count_out(state, request)


@compiled_part
def _refill(state: Any) -> None:
    while state.num_front < state.front_size and state.num_backlog > 0:
        row = backlog_of(state)[0].row
        drop_top(backlog_of(state), state.num_backlog)
        state.num_backlog -= 1
        if is_waiting(requests_of(state)[row]):
            front_of(state)[state.num_front] = requests_of(state)[row]
            state.num_front += 1


@compiled_part
def is_waiting(request: Any) -> bool:
    """Tell whether a row of the table waits (new or preempted)."""
    return request.status == WAITING or request.status == PREEMPTED


@compiled_part
def position_of(state: Any, row: int) -> int:
    """Return where ``row`` stands in the front, or -1 where it lies in the backlog."""
    for position in range(state.num_front):
        if front_of(state)[position].row == row:
            return position
    return -1


@compiled_part
def take_out(state: Any, row: int) -> None:
    """Take a waiting request out of the queue, wherever it stands; its row is up to date then."""
    position = position_of(state, row)
    if position >= 0:
        requests_of(state)[row] = front_of(state)[position]
        dequeue(state, position)
    else:
        leave(state, requests_of(state)[row])


@compiled_part
def reorder(state: Any, key: Any) -> None:
    """Sort all waiting requests anew, for keys that change with time. O(n + front_size log n)."""
    for position in range(state.num_front):
        requests_of(state)[front_of(state)[position].row] = front_of(state)[position]
        backlog_of(state)[state.num_backlog + position].row = front_of(state)[position].row
    count = state.num_backlog + state.num_front
    state.num_backlog = 0
    state.num_front = 0
    for position in range(count):
        request = requests_of(state)[backlog_of(state)[position].row]
        if is_waiting(request):
            request.passes_waited += 1
            request.num_cached_tokens = cached_blocks(state, request) * state.block_size
            _set_key(state, key, request)
            _push_back(state, request)
    _refill(state)
