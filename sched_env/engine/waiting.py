"""Waiting requests in service order.

The best of them lie in ``front``, by value in cells; ``order`` names the cells in service order,
so that only small places are moved when the order changes. The rest are rows in a heap
(``backlog``). Nothing in the backlog precedes anything in the front. Unless the backlog is empty
the front holds at least as many as are shown, and where none are shown it is full. Putting one in
or taking one out costs O(front_size + log n).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.engine.fair_share import share_out
from sched_env.engine.features import density, show_progress, show_rest
from sched_env.engine.heap import drop_top, goes_before, push
from sched_env.engine.lanes import (
    bring_up_to_date,
    find_head,
    give_up_lanes,
    join_lane,
    leave_lane,
    note_wait,
    pass_lanes,
)
from sched_env.engine.memory import (
    backlog_of,
    front_of,
    lanes_of,
    order_of,
    requests_of,
    waiter_at,
)
from sched_env.engine.pool import cached_blocks
from sched_env.engine.records import PREEMPTED, WAITING
from sched_env.engine.reward import settle_waiting
from sched_env.engine.sizes import blocks_for, decode_tokens_left, num_tokens, tokens_left


@compiled_part
def empty_front(state: Any) -> None:
    """Make all cells of the front free."""
    state.num_front = 0
    for position in range(state.front_size):
        order_of(state)[position].cell = position


@compiled_part
def enqueue(state: Any, key: Any, request: Any) -> None:
    """Let the request of a row wait, at the place that ``key`` gives it.

    A preempted request comes back by the same rule as a new one: under fcfs its key is its arrival
    number, which is smaller than that of every request that never ran, so it stands at the head.
    """
    settle_waiting(state)
    state.num_waiting += 1
    count_in(state, request)
    request.passes_waited = 0
    request.times_passed = 0
    _prepare_to_wait(state, request)
    if state.has_lanes:
        note_wait(state, request.row)
        if not join_lane(state, request):
            _sort(state, key, give_up_lanes(state), 0)
        return
    first, second = _key_of(state, key, request)
    _place(state, request, first, second)


@compiled_part
def _key_of(state: Any, key: Any, request: Any) -> tuple[float, float]:
    """Return a request's place in the order; with ``resume_first`` preempted ones come first."""
    first, second = key(request, state.clock_s)
    if state.resume_first and request.status == PREEMPTED:
        return -np.inf, first
    return first, second


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
def _prepare_to_wait(state: Any, request: Any) -> None:
    """Note what rests while a request waits."""
    request.whole_blocks = blocks_for(num_tokens(request), state.block_size)
    if state.num_waiting_slots > 0:
        request.density = density(request)


@compiled_part
def lengthen(state: Any, row: int) -> None:
    """Note that the sequence of a waiting request has grown; its place stays as it was."""
    request = requests_of(state)[row]
    _prepare_to_wait(state, request)
    position = position_of(state, row)
    if position >= 0:
        waiter = waiter_at(state, position)
        _fill(state, position, request, waiter.key, waiter.second_key)


@compiled_part
def _place(state: Any, request: Any, key: float, second_key: float) -> None:
    is_full = state.num_front == state.front_size
    if is_full or state.num_backlog > 0:
        last = waiter_at(state, state.num_front - 1)
        if not goes_before(key, second_key, request.tie, last):
            _push_back(state, request.row, key, second_key, request.tie)
            return
        if is_full:
            _push_back(state, last.row, last.key, last.second_key, last.tie)
            state.num_front -= 1
    front, order = front_of(state), order_of(state)
    cell, count = order[state.num_front].cell, state.num_front
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if _goes_before_place(key, second_key, request.tie, order[middle], front):
            high = middle
        else:
            low = middle + 1
    for position in range(count, low, -1):
        order[position] = order[position - 1]
    order[low].cell = cell
    state.place_came_in = 1
    _fill(state, low, request, key, second_key)
    state.num_front = count + 1


@compiled_part
def _goes_before_place(key: float, second_key: float, tie: int, place: Any, front: Any) -> bool:
    """Tell whether what has this key comes before the request at a place of the front."""
    if key != place.key:
        return key < place.key
    return goes_before(key, second_key, tie, front[place.cell])


@compiled_part
def _fill(state: Any, position: int, request: Any, key: float, second_key: float) -> None:
    """Write what decisions and observations look at into a place of the front and its cell."""
    place = order_of(state)[position]
    waiter = front_of(state)[place.cell]
    state.num_unmoved = min(state.num_unmoved, position)
    place.key = key
    waiter.key = key
    waiter.second_key = second_key
    waiter.tie = request.tie
    waiter.row = request.row
    waiter.num_tokens = num_tokens(request)
    place.whole_blocks = request.whole_blocks
    if state.num_waiting_slots == 0:
        return
    place.moved_at_iteration = request.moved_at_iteration
    place.density = request.density
    place.arrival_time_s = request.arrival_time_s
    place.slot = -1
    waiter.weight = request.weight
    waiter.arrival_time_s = request.arrival_time_s
    waiter.ttft_slo_s = request.ttft_slo_s
    waiter.lone_prefill_s = request.lone_prefill_s
    waiter.first_token_s = request.first_token_s
    waiter.allowed_s = request.tpot_slo_s * request.num_output_tokens
    show_rest(request, waiter.resting)
    waiter.resting.preemptible = request.preemptible
    show_progress(
        tokens_left(request),
        decode_tokens_left(request),
        request.whole_blocks / state.num_blocks,
        request.num_computed_tokens,
        request.num_output_tokens,
        waiter.resting,
    )


@compiled_part
def _push_back(state: Any, row: int, key: float, second_key: float, tie: int) -> None:
    push(backlog_of(state), state.num_backlog, key, second_key, tie, row)
    state.num_backlog += 1


@compiled_part
def dequeue(state: Any, position: int) -> None:
    """Take the request at a position of the front out of the waiting ones."""
    order = order_of(state)
    cell = order[position].cell
    row = front_of(state)[cell].row
    last = state.num_front - 1
    for i in range(position, last):
        order[i] = order[i + 1]
    order[last].cell = cell
    leave(state, requests_of(state)[row])
    state.num_front = last
    state.num_unmoved = min(state.num_unmoved, position)
    _refill(state)


@compiled_part
def leave(state: Any, request: Any) -> None:
    """Count ``request`` out of the waiting ones (one in the backlog stays there as a husk)."""
    settle_waiting(state)
    state.num_waiting -= 1
    count_out(state, request)


@compiled_part
def _refill(state: Any) -> None:
    """Bring the best of the backlog to the front until it holds as many as are shown, if any."""
    wanted = state.num_waiting_slots if state.num_waiting_slots > 0 else state.front_size
    while state.num_front < wanted and state.num_backlog > 0:
        best = backlog_of(state)[0]
        row, key, second_key = best.row, best.key, best.second_key
        drop_top(backlog_of(state), state.num_backlog)
        state.num_backlog -= 1
        request = requests_of(state)[row]
        if is_waiting(request):
            _fill(state, state.num_front, request, key, second_key)
            state.num_front += 1


@compiled_part
def is_waiting(request: Any) -> bool:
    """Tell whether a row of the table waits (new or preempted)."""
    return request.status == WAITING or request.status == PREEMPTED


@compiled_part
def position_of(state: Any, row: int) -> int:
    """Return where ``row`` stands in the front, or -1 where it lies in the backlog."""
    for position in range(state.num_front):
        if waiter_at(state, position).row == row:
            return position
    return -1


@compiled_part
def take_out(state: Any, row: int) -> None:
    """Take a waiting request out of the queue, wherever it stands."""
    position = position_of(state, row)
    if position >= 0:
        dequeue(state, position)
    else:
        if state.has_lanes:
            bring_up_to_date(state, requests_of(state)[row])
        leave(state, requests_of(state)[row])


@compiled_part
def reorder(state: Any, key: Any) -> None:
    """Put the queue in order anew, for keys that change with time.

    With lanes its head is all that is looked for, O(lanes); else all waiting requests are sorted,
    O(n + front_size log n).
    """
    if state.has_lanes:
        _return_head(state)
    if state.has_lanes:
        pass_lanes(state)
        bring_head(state, key)
        return
    backlog = backlog_of(state)
    for position in range(state.num_front):
        backlog[state.num_backlog + position].row = waiter_at(state, position).row
    count = state.num_backlog + state.num_front
    if state.counts_classes:
        share_out(state, count)
    _sort(state, key, count, 1)


@compiled_part
def _sort(state: Any, key: Any, count: int, passes: int) -> None:
    """Sort the first ``count`` rows of the backlog into the queue, which they all are."""
    backlog = backlog_of(state)
    state.num_backlog = 0
    state.num_front = 0
    for position in range(count):
        request = requests_of(state)[backlog[position].row]
        if is_waiting(request):
            request.passes_waited += passes
            request.num_cached_tokens = cached_blocks(state, request) * state.block_size
            first, second = _key_of(state, key, request)
            _push_back(state, request.row, first, second, request.tie)
    _refill(state)


@compiled_part
def _return_head(state: Any) -> None:
    """Put the head of the queue back into its lane; without room for that, give up lanes."""
    if state.num_front > 0:
        request = requests_of(state)[waiter_at(state, 0).row]
        state.num_front = 0
        if not join_lane(state, request):
            state.num_backlog = give_up_lanes(state)


@compiled_part
def bring_head(state: Any, key: Any) -> None:
    """Let the head of a queue of lanes stand in the front, alone."""
    if not state.has_lanes or state.num_front > 0:
        return
    place = find_head(state, key)
    if place >= 0:
        lane = lanes_of(state)[place]
        request = requests_of(state)[lane.first]
        first, second = lane.key, lane.second_key
        leave_lane(state, place)
        _place(state, request, first, second)
