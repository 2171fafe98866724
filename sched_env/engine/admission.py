"""Admission of waiting requests, by the rules of vLLM's scheduler and some beyond them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.engine.batch import assign, grow
from sched_env.engine.cohort import as_it_stands
from sched_env.engine.ending import stand_up
from sched_env.engine.events import record
from sched_env.engine.fair_share import charge_class
from sched_env.engine.flight import is_stale
from sched_env.engine.memory import requests_of, running_of, waiter_at
from sched_env.engine.pool import cached_blocks, free_among_cached, open_table, share_blocks
from sched_env.engine.preemption import preempt
from sched_env.engine.records import (
    EVENT_ADMIT,
    RESERVE_NOTHING,
    RESERVE_PREDICTED,
    RUNNING,
)
from sched_env.engine.sizes import (
    blocks_for,
    blocks_to_grow,
    num_tokens,
    tokens_left,
)
from sched_env.engine.waiting import bring_head, dequeue, position_of


@compiled_part
def schedule_waiting(state: Any, key: Any) -> None:
    """Admit from the head of the queue until one does not fit (head-of-line blocking).

    With ``skip_ahead`` a limited number of others may pass the one that does not fit; they are
    looked for among the first ``num_looked_at`` waiting requests.
    """
    position, num_held_back, last = 0, 0, state.num_looked_at
    reserved = reserved_blocks(state)
    while position < min(state.num_front, last):
        request = requests_of(state)[waiter_at(state, position).row]
        if is_stale(request):
            num_held_back += 1
            position += 1
            continue
        tokens = _first_chunk(state, request)
        if tokens > 0 and _has_room(state, request, tokens, reserved):
            _count_passing(state, position)
            dequeue(state, position)
            admit(state, request, tokens)
            bring_head(state, key)
            reserved += still_needed(state, running_of(state)[state.num_running - 1])
            continue
        if not state.preemptive_priority and not _has_seat(state):
            break
        if state.preemptive_priority:
            row = request.row
            if _evict_for(state, key, request):
                reserved = reserved_blocks(state)
                position = position_of(state, row)  # the victim may have come before it
                last += 1
                continue
        if tokens == 0 or request.times_passed >= state.skip_ahead:
            break
        position += 1
    if not state.defers_prefill:
        state.prefill_capacity_bound = state.num_waiting > num_held_back


@compiled_part
def _has_room(state: Any, request: Any, tokens: int, reserved: int) -> bool:
    if not _has_seat(state):
        return False
    return fits(state, request, tokens, state.free_blocks - reserved, state.num_running > 0)


@compiled_part
def _has_seat(state: Any) -> bool:
    return state.num_running < state.max_num_active_seqs


@compiled_part
def _first_chunk(state: Any, request: Any) -> int:
    """Return the tokens that the batch can take of a waiting request; 0: it has to wait."""
    budget = state.max_num_batched_tokens - state.batch_tokens
    left = tokens_left(request) - cached_blocks(state, request) * state.block_size
    if budget <= 0 or (state.defers_prefill and left > 1):
        return 0
    tokens = min(left, state.chunk_cap)
    if tokens > budget and not state.enable_chunked_prefill:
        return 0
    return min(tokens, budget)


@compiled_part
def fits(state: Any, request: Any, chunk: int, free_blocks: int, others_run: bool) -> bool:
    """Tell whether a waiting request may take ``chunk`` tokens of a batch, by its blocks.

    With ``reserve_full_isl`` the whole sequence so far has to fit, though only the chunk's blocks
    are taken (vLLM's ``scheduler_reserve_full_isl``). The watermark has to stay free as well,
    unless nothing runs.
    """
    need = request.whole_blocks
    if state.enable_prefix_caching:
        return _fits_with_cache(state, request, chunk, free_blocks, others_run)
    if not state.reserve_full_isl:
        need = blocks_to_grow(request, chunk, state.block_size)
    if others_run:
        need += state.watermark_blocks
    return need + _reserve_of(state, request, others_run) <= free_blocks


@compiled_part
def _fits_with_cache(
    state: Any, request: Any, chunk: int, free_blocks: int, others_run: bool
) -> bool:
    cached = cached_blocks(state, request)
    need = request.whole_blocks - cached
    if not state.reserve_full_isl:
        computed = request.num_computed_tokens + cached * state.block_size
        need = blocks_for(computed + chunk, state.block_size) - cached
    if others_run:
        need += state.watermark_blocks
    need += free_among_cached(state, request, cached)
    return need + _reserve_of(state, request, others_run) <= free_blocks


@compiled_part
def _reserve_of(state: Any, request: Any, others_run: bool) -> int:
    """Return the blocks to reserve for a request's output; one that is alone just runs."""
    if state.reserve_outputs == RESERVE_NOTHING or not others_run:
        return 0
    return _most_blocks(state, request) - request.whole_blocks


@compiled_part
def _most_blocks(state: Any, request: Any) -> int:
    """Return the blocks that a request can come to hold by its predicted or longest output."""
    outputs = int(requests_of(state)[request.row].output_tokens)
    if state.reserve_outputs == RESERVE_PREDICTED:
        outputs = max(int(np.ceil(request.predicted_output_tokens)), 1)
    tokens = min(request.prompt_tokens + outputs, state.max_model_len) - 1
    return blocks_for(max(tokens, num_tokens(request)), state.block_size)


@compiled_part
def still_needed(state: Any, request: Any) -> int:
    """Return the blocks to keep for a request that runs or is to run (``no_evict``)."""
    if state.reserve_outputs == RESERVE_NOTHING:
        return 0
    return max(_most_blocks(state, request) - request.num_blocks, 0)


@compiled_part
def reserved_blocks(state: Any) -> int:
    """Return the blocks to keep for all running requests (``no_evict``)."""
    reserved = 0
    if state.reserve_outputs != RESERVE_NOTHING:
        for i in range(state.num_running):
            reserved += still_needed(state, as_it_stands(state, i))
    return reserved


@compiled_part
def _count_passing(state: Any, position: int) -> None:
    for i in range(position):
        requests_of(state)[waiter_at(state, i).row].times_passed += 1


@compiled_part
def _evict_for(state: Any, key: Any, request: Any) -> bool:
    """Preempt a running request of strictly lower priority, if such ones can make enough room.

    The lowest priority goes first, of equals the latest arrival. A request that was preempted for
    this batch evicts nobody.
    """
    if request.moved_at_iteration == state.iteration:
        return False
    worst, blocks, tokens = -1, state.free_blocks, state.max_num_batched_tokens - state.batch_tokens
    for i in range(state.num_running):
        seat = as_it_stands(state, i)
        other = stand_up(state, seat)
        if other.priority >= request.priority:
            continue
        blocks += other.num_blocks
        tokens += seat.num_scheduled_tokens
        if worst < 0 or _gives_way_before(other, requests_of(state)[running_of(state)[worst].row]):
            worst = i
    if worst < 0 or tokens < _fewest_tokens(state, request) or request.whole_blocks > blocks:
        return False
    preempt(state, key, worst)
    return True


@compiled_part
def _fewest_tokens(state: Any, request: Any) -> int:
    """Return how many tokens of a waiting request a batch has to take at least."""
    if state.enable_chunked_prefill:
        return 1
    return tokens_left(request) - cached_blocks(state, request) * state.block_size


@compiled_part
def _gives_way_before(left: Any, right: Any) -> bool:
    if left.priority != right.priority:
        return left.priority < right.priority
    return left.arrival_time_s >= right.arrival_time_s


@compiled_part
def admit(state: Any, request: Any, tokens: int) -> None:
    """Append a waiting request to the running ones, with its first chunk in the batch."""
    seat = running_of(state)[state.num_running]
    state.num_running += 1
    _sit_down(seat, request)
    charge_class(state, request, -1.0)
    request.status = RUNNING
    if state.enable_prefix_caching:
        request.num_cached_tokens = _use_cache(state, seat)
    if state.swaps and seat.num_computed_tokens > 0:
        state.batch_moved_blocks += blocks_for(seat.num_computed_tokens, state.block_size)
    seat.is_prefill_chunk = tokens_left(seat) > 1
    grow(state, seat, tokens)
    assign(state, seat, tokens)
    if np.isnan(request.first_scheduled_s):
        request.first_scheduled_s = state.clock_s
    record(state, EVENT_ADMIT, request, tokens, seat.num_blocks)


@compiled_part
def _sit_down(seat: Any, request: Any) -> None:
    """Copy what a running request is asked for into a seat."""
    seat.row = request.row
    seat.prompt_tokens = request.prompt_tokens
    seat.num_output_tokens = request.num_output_tokens
    seat.num_computed_tokens = request.num_computed_tokens
    seat.num_blocks = request.num_blocks
    seat.num_scheduled_tokens = 0
    seat.num_output_placeholders = request.num_output_placeholders
    seat.stop_at_tokens = request.stop_at_tokens
    seat.in_flight = request.in_flight
    seat.preemptible = request.preemptible
    seat.predicted_output_tokens = request.predicted_output_tokens
    seat.first_token_s = request.first_token_s
    seat.last_token_s = request.last_token_s
    seat.tpot_slo_s = request.tpot_slo_s


@compiled_part
def _use_cache(state: Any, request: Any) -> int:
    """Take what the prefix cache holds of a request that is admitted; return its tokens."""
    cached = cached_blocks(state, request)
    open_table(state, request)
    if cached > 0:
        share_blocks(state, request, cached)
    state.num_cached_tokens += cached * state.block_size
    return cached * state.block_size
