"""Preemption: which running request makes room, and what becomes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.engine.batch import never_fits_a_batch, withdraw
from sched_env.engine.cohort import as_it_stands, step_out
from sched_env.engine.ending import give_up, is_out_of_reach, remove_running, stand_up
from sched_env.engine.events import record
from sched_env.engine.fair_share import charge_class, count_running
from sched_env.engine.flight import note_stale
from sched_env.engine.heap import push
from sched_env.engine.memory import expiries_of, running_of
from sched_env.engine.pool import give_back_blocks
from sched_env.engine.records import (
    EVENT_PREEMPT,
    KV_CAPACITY,
    NO_PROGRESS,
    NOT_IN_FLIGHT,
    PREEMPTED,
    VICTIM_LEAST_COMPUTED,
    VICTIM_LOWEST_PRIORITY,
    VICTIM_MOST_BLOCKS_PER_TOKEN,
    VICTIM_RANDOM,
    VICTIM_TAIL,
)
from sched_env.engine.reward import punish_recompute
from sched_env.engine.sizes import blocks_for, num_tokens
from sched_env.engine.waiting import enqueue
from sched_env.workload.counter_rng import mix, uniform

_VICTIM_STREAM = 12


@compiled_part
def victim(state: Any, key: Any) -> int:
    """Return the position of the running request that makes room.

    ``tail``: the last (vLLM's fcfs). Otherwise the one of largest rank, the first of equals (vLLM's
    priority policy) or the last, by ``victim_tie``.
    """
    if state.victim == VICTIM_TAIL:
        return state.num_running - 1
    if state.counts_classes:
        count_running(state)
    worst = 0
    worst_first, worst_second = -np.inf, -np.inf
    for i in range(state.num_running):
        first, second = _rank(state, key, stand_up(state, as_it_stands(state, i)))
        is_equal = first == worst_first and second == worst_second
        is_worse = first > worst_first or (first == worst_first and second > worst_second)
        if is_worse or (is_equal and state.victim_tie_last):
            worst, worst_first, worst_second = i, first, second
    return worst


@compiled_part
def _rank(state: Any, key: Any, request: Any) -> tuple[float, float]:
    """Return how readily a request gives way, by the victim rule: the largest goes first.

    The default is the policy's own order: who is served last gives way first.
    """
    rule = state.victim
    if rule == VICTIM_LOWEST_PRIORITY:
        return -float(request.priority), float(request.arrival_time_s)
    if rule == VICTIM_LEAST_COMPUTED:
        return -float(request.num_computed_tokens), 0.0
    if rule == VICTIM_MOST_BLOCKS_PER_TOKEN:
        return request.num_blocks / max(request.num_computed_tokens, 1), 0.0
    if rule == VICTIM_RANDOM:
        draw = mix(state.iteration, state.num_preemptions)
        return uniform(mix(state.seed, draw), request.row, _VICTIM_STREAM), 0.0
    first, second = key(request, state.clock_s)
    return first, second


@compiled_part
def preempt(state: Any, key: Any, position: int) -> None:
    """Send a running request back to wait: its blocks go, its outputs stay.

    Its computed tokens are to be computed again, unless its blocks are swapped out.
    """
    step_out(state, position)
    seat = running_of(state)[position]
    if seat.num_scheduled_tokens > 0:
        withdraw(state, seat)
    if state.async_scheduling:
        note_stale(state, seat)
    blocks = seat.num_blocks
    lost = 0 if state.swaps else seat.num_computed_tokens
    if state.swaps:
        state.batch_moved_blocks += blocks
    punish_recompute(state, lost)
    give_back_blocks(state, seat)
    request = stand_up(state, seat)
    charge_class(state, request, 1.0)
    remove_running(state, position)
    state.num_preemptions += 1
    state.num_preempted_now += 1
    state.num_recomputed_tokens += lost
    request.num_computed_tokens -= lost
    request.num_recomputed_tokens += lost
    request.num_preemptions += 1
    request.moved_at_iteration = state.iteration
    request.status = PREEMPTED
    record(state, EVENT_PREEMPT, request, lost, -blocks)
    reason = _why_never_again(state, request)
    if reason > 0:
        request.in_flight = NOT_IN_FLIGHT
        give_up(state, request, reason)
        return
    if state.shed_hopeless and is_out_of_reach(state, request):
        row = request.row
        push(expiries_of(state), state.num_expiries, state.clock_s, 0.0, row, row)
        state.num_expiries += 1
    enqueue(state, key, request)


@compiled_part
def _why_never_again(state: Any, request: Any) -> int:
    """Return why a preempted request could never run again, or 0."""
    if blocks_for(num_tokens(request), state.block_size) > state.num_blocks:
        return KV_CAPACITY
    left = num_tokens(request) - request.num_computed_tokens
    return NO_PROGRESS if never_fits_a_batch(state, left) else 0
