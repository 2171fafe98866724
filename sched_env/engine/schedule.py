"""Form the batch of one iteration, by the rules of vLLM's scheduler.

There is no prefill phase and no decode phase: each request has tokens (prompt and outputs) and
computed tokens, and a batch brings the second towards the first (vllm/v1/core/sched/scheduler.py).
Running requests come first, then waiting ones, under three budgets: tokens of the batch
(``max_num_batched_tokens``), requests (``max_num_seqs``) and KV blocks (``num_blocks``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.engine.ending import end_running, is_out_of_reach, remove_running, settle
from sched_env.engine.events import record
from sched_env.engine.heap import push
from sched_env.engine.memory import cost_of, expiries_of, front_of, requests_of, running_of
from sched_env.engine.records import (
    EVENT_ADMIT,
    EVENT_PREEMPT,
    FINISHED,
    KV_CAPACITY,
    PREEMPTED,
    RUNNING,
    VICTIM_TAIL,
)
from sched_env.engine.reward import punish_recompute
from sched_env.engine.sizes import (
    blocks_for,
    blocks_to_grow,
    is_decoding,
    num_tokens,
    tokens_left,
)
from sched_env.engine.waiting import dequeue, enqueue, reorder


@compiled_part
def grow(state: Any, request: Any, tokens: int) -> bool:
    """Take the blocks that ``tokens`` more computed tokens need; take none if too few are free."""
    need = blocks_to_grow(request, tokens, state.block_size)
    if need > state.free_blocks:
        return False
    state.free_blocks -= need
    request.num_blocks += need
    return True


@compiled_part
def assign(state: Any, request: Any, tokens: int) -> None:
    """Put ``tokens`` of ``request`` into the batch and count what the step-time model needs."""
    if is_decoding(request):
        state.batch_decodes += 1
        state.batch_context_tokens += num_tokens(request)
    else:
        state.batch_prefill_tokens += tokens
        state.batch_attention += _attention(cost_of(state), request.num_computed_tokens, tokens)
    state.batch_tokens += tokens
    request.num_scheduled_tokens = tokens
    request.num_computed_tokens += tokens


@compiled_part
def _attention(cost: Any, past: int, chunk: int) -> float:
    return max(chunk, cost.mixed_min_chunk_tokens) * (past + 0.5 * chunk)


@compiled_part
def withdraw(state: Any, request: Any) -> None:
    """Take a request out of the batch again."""
    tokens = request.num_scheduled_tokens
    request.num_scheduled_tokens = 0
    request.num_computed_tokens -= tokens
    state.batch_tokens -= tokens
    if is_decoding(request):
        state.batch_decodes -= 1
        state.batch_context_tokens -= num_tokens(request)
    else:
        state.batch_prefill_tokens -= tokens
        state.batch_attention -= _attention(cost_of(state), request.num_computed_tokens, tokens)


@compiled_part
def preempt(state: Any, key: Any, position: int) -> None:
    """Send a running request back to wait: its blocks and computed tokens go, its outputs stay."""
    request = running_of(state)[position]
    if request.num_scheduled_tokens > 0:
        withdraw(state, request)
    row = request.row
    lost = request.num_computed_tokens
    blocks = request.num_blocks
    punish_recompute(state, lost)
    state.free_blocks += blocks
    state.num_preemptions += 1
    state.num_preempted_now += 1
    state.num_recomputed_tokens += lost
    request.num_blocks = 0
    request.num_computed_tokens = 0
    request.num_recomputed_tokens += lost
    request.num_preemptions += 1
    request.moved_at_iteration = state.iteration
    request.status = PREEMPTED
    record(state, EVENT_PREEMPT, request, lost, -blocks)
    if blocks_for(num_tokens(request), state.block_size) > state.num_blocks:
        settle(state, request, FINISHED, KV_CAPACITY)  # it could never be computed again
    else:
        requests_of(state)[row].status = PREEMPTED
        if state.shed_hopeless and is_out_of_reach(state, request):
            push(expiries_of(state), state.num_expiries, state.clock_s, 0.0, row, row)
            state.num_expiries += 1
        enqueue(state, key, request)
    remove_running(state, position)


@compiled_part
def victim(state: Any, key: Any) -> int:
    """Return the position of the running request that makes room.

    ``tail``: the last (vLLM's fcfs). ``largest_key``: the one that is served last by key, the
    first of equals (vLLM's priority policy).
    """
    if state.victim == VICTIM_TAIL:
        return state.num_running - 1
    worst = 0
    worst_key, worst_second = -np.inf, -np.inf
    for i in range(state.num_running):
        first, second = key(running_of(state)[i], state.clock_s)
        if first > worst_key or (first == worst_key and second > worst_second):
            worst, worst_key, worst_second = i, first, second
    return worst


@compiled_part
def open_batch(state: Any) -> None:
    """Start an empty batch."""
    state.num_preempted_now = 0
    state.batch_tokens = 0
    state.batch_prefill_tokens = 0
    state.batch_decodes = 0
    state.batch_context_tokens = 0
    state.batch_attention = 0.0


@compiled_part
def schedule_running(state: Any, key: Any, prefill_cap: int) -> None:
    """Give each running request its tokens, in order, preempting when blocks run short.

    A victim that stood earlier has its tokens withdrawn, so its budget is free again; a request
    that is its own victim is passed over.
    """
    position = 0
    while position < state.num_running and state.batch_tokens < state.max_num_batched_tokens:
        tokens = tokens_to_schedule(state, running_of(state)[position], prefill_cap)
        is_victim = False
        while tokens > 0 and not grow(state, running_of(state)[position], tokens):
            if state.num_running == 1:
                end_running(state, position, KV_CAPACITY)
                return
            evicted = victim(state, key)
            preempt(state, key, evicted)
            is_victim = evicted == position
            if is_victim:
                break
            if evicted < position:
                position -= 1
        if is_victim:
            continue
        if tokens > 0:
            assign(state, running_of(state)[position], tokens)
        position += 1


@compiled_part
def tokens_to_schedule(state: Any, request: Any, prefill_cap: int) -> int:
    """Return how many tokens of ``request`` the batch can still take."""
    tokens = min(tokens_left(request), state.max_num_batched_tokens - state.batch_tokens)
    if not is_decoding(request):
        tokens = min(tokens, prefill_cap - state.batch_prefill_tokens)
    return max(tokens, 0)


@compiled_part
def fits(state: Any, request: Any, chunk: int, free_blocks: int) -> bool:
    """Tell whether a waiting request may take ``chunk`` tokens of a batch, by its blocks.

    With ``reserve_full_isl`` the whole sequence so far has to fit, though only the chunk's blocks
    are taken (vLLM's ``scheduler_reserve_full_isl``).
    """
    if state.reserve_full_isl:
        return request.whole_blocks <= free_blocks
    return blocks_for(chunk, state.block_size) <= free_blocks


@compiled_part
def admit(state: Any, request: Any, tokens: int) -> None:
    """Append a waiting request to the running ones, with its first chunk in the batch."""
    seat = running_of(state)[state.num_running]
    running_of(state)[state.num_running] = request
    state.num_running += 1
    seat.status = RUNNING
    grow(state, seat, tokens)
    assign(state, seat, tokens)
    if np.isnan(seat.first_scheduled_s):
        seat.first_scheduled_s = state.clock_s
    requests_of(state)[seat.row].status = RUNNING
    record(state, EVENT_ADMIT, seat, tokens, seat.num_blocks)


@compiled_part
def schedule_waiting(state: Any) -> None:
    """Admit from the head of the queue until one does not fit (head-of-line blocking)."""
    while (
        state.num_front > 0
        and state.num_running < state.max_num_seqs
        and state.batch_tokens < state.max_num_batched_tokens
    ):
        head = front_of(state)[0]
        tokens = tokens_to_schedule(state, head, state.max_num_batched_tokens)
        if not fits(state, head, tokens, state.free_blocks):
            break
        admit(state, head, tokens)
        dequeue(state, 0)


@compiled_part
def schedule(state: Any, key: Any) -> None:
    """Form a batch: running requests, then waiting ones.

    A step that preempted admits nobody, unless ``readmit_after_preemption`` (P07's rule; vLLM
    skips the waiting phase then).
    """
    open_batch(state)
    schedule_running(state, key, state.max_num_batched_tokens)
    if state.num_preempted_now == 0 or state.readmit_after_preemption:
        if not state.static_order and state.num_running < state.max_num_seqs:
            reorder(state, key)
        schedule_waiting(state)


@compiled_part
def admission_is_closed(state: Any) -> bool:
    """Tell whether more batches like this one would admit nobody, until something else happens.

    The queue is empty, all seats are taken, or the head did not fit: free blocks only shrink
    until a request ends. Keys that change with time may bring another head.
    """
    if state.num_preempted_now > 0:
        return False
    no_seat = state.num_running >= state.max_num_seqs
    return state.num_waiting == 0 or no_seat or bool(state.static_order)
