"""Which actions are legal: the mask that a decision is taken under.

By place in the mask: *proceed* at each prefill level, *admit* each waiting slot, *preempt* each
running slot, the last of the batch order first. See ``decide.py`` for what they do.
"""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.admission import fits
from sched_env.engine.flight import is_stale
from sched_env.engine.layout import FULL_LEVEL, NUM_LEVELS, PREFILL_LEVELS
from sched_env.engine.ledger import tokens_to_prefill
from sched_env.engine.memory import mask_of, order_of, requests_of, running_of, waiter_at
from sched_env.engine.records import NO_LIMIT, RESERVE_NOTHING
from sched_env.engine.sizes import blocks_for


@compiled_part
def legal_actions(state: Any) -> int:
    """Write the mask of legal actions, int8 (L + K + J,), and return how many there are."""
    mask = mask_of(state)
    mask[:] = 0
    if state.terminated or state.truncated:
        mask[FULL_LEVEL] = 1
        return 1
    first_running = NUM_LEVELS + state.num_waiting_slots
    shown_running = min(state.num_running, state.num_running_slots)
    if state.ledger_blocks < 0:
        mask[first_running : first_running + shown_running] = 1
        state.num_fitting = 0
        return shown_running
    lacking = _legal_admissions(state)
    count = state.num_fitting + _legal_levels(state)
    if lacking and state.news:
        for j in range(shown_running):
            if running_of(state)[state.num_running - 1 - j].preemptible:
                mask[first_running + j] = 1
                count += 1
    return count


@compiled_part
def _legal_admissions(state: Any) -> bool:
    """Mark the waiting slots that fit; tell whether one lacks blocks or a seat."""
    if _blocks_decide(state):
        return _legal_by_blocks(state)
    mask = mask_of(state)
    state.num_fitting = 0
    lacking = False
    for k in range(min(state.num_front, state.num_waiting_slots)):
        request = requests_of(state)[waiter_at(state, k).row]
        if not may_move(state, request) or _is_held_back(state, request):
            continue
        if not (has_seat(state) and has_blocks(state, request)):
            lacking = True
        elif state.ledger_tokens > 0:
            mask[NUM_LEVELS + k] = 1
            state.num_fitting += 1
    return lacking


@compiled_part
def _blocks_decide(state: Any) -> bool:
    """Tell whether the blocks of its own tokens alone decide whether a request may be admitted."""
    if state.async_scheduling or state.enable_prefix_caching or state.swaps:
        return False
    held_back = state.defers_prefill or not state.enable_chunked_prefill
    return state.reserve_outputs == RESERVE_NOTHING and not held_back


@compiled_part
def _legal_by_blocks(state: Any) -> bool:
    """Do the work of ``_legal_admissions`` where blocks decide; ``fits`` is the rule.

    Without branches, for the processor cannot foresee who fits.
    """
    mask, order, iteration = mask_of(state), order_of(state), state.iteration
    room, most = state.ledger_blocks, NO_LIMIT
    if state.num_running + state.num_admitted > 0:
        room -= state.watermark_blocks
    if not state.reserve_full_isl:
        most = blocks_for(min(max(state.ledger_tokens, 1), state.chunk_cap), state.block_size)
    largest = NO_LIMIT if most <= room else room  # min(blocks, most) <= room
    if not has_seat(state):
        largest = -1
    tokens = state.ledger_tokens > 0
    num_fitting, num_movable = 0, 0
    for k in range(min(state.num_front, state.num_waiting_slots)):
        place = order[k]
        movable = place.moved_at_iteration != iteration
        fitting = movable & (place.whole_blocks <= largest)
        num_movable += movable
        num_fitting += fitting
        mask[NUM_LEVELS + k] = fitting & tokens
    state.num_fitting = num_fitting if tokens else 0
    return num_movable > num_fitting


@compiled_part
def _is_held_back(state: Any, request: Any) -> bool:
    """Tell whether a waiting request cannot be admitted now, whatever the blocks and seats."""
    if is_stale(request):
        return True
    if not (state.defers_prefill or not state.enable_chunked_prefill):
        return False
    tokens = tokens_to_prefill(state, request)
    return (state.defers_prefill and tokens > 1) or tokens > state.ledger_tokens


@compiled_part
def may_move(state: Any, request: Any) -> bool:
    """Tell whether a waiting request has not changed place in this iteration yet.

    A running one has not: it was scheduled in an earlier iteration.
    """
    return request.moved_at_iteration != state.iteration


@compiled_part
def has_seat(state: Any) -> bool:
    """Tell whether ``max_num_active_seqs`` allows one more."""
    return state.num_running + state.num_admitted < state.max_num_active_seqs


@compiled_part
def has_blocks(state: Any, request: Any) -> bool:
    """Tell whether the ledger holds the blocks to admit a waiting request."""
    chunk = min(tokens_to_prefill(state, request), max(state.ledger_tokens, 1))
    free_blocks = state.ledger_blocks
    if state.reserve_outputs != RESERVE_NOTHING:
        free_blocks = state.free_blocks - state.ledger_reserved
    return fits(state, request, chunk, free_blocks, state.num_running + state.num_admitted > 0)


@compiled_part
def _legal_levels(state: Any) -> int:
    """Mark the prefill levels; of those that give the same batch only the highest."""
    mask = mask_of(state)
    if state.num_running + state.num_admitted == 0:
        mask[FULL_LEVEL] = state.num_fitting == 0
        return 1 if state.num_fitting == 0 else 0
    mask[FULL_LEVEL] = 1
    count = 1
    demand = state.ledger_prefill_tokens
    if demand == 0 or not state.enable_chunked_prefill:
        return count
    tokens = min(prefill_cap(state, 0), demand)
    for level in range(FULL_LEVEL):
        above = min(prefill_cap(state, level + 1), demand)
        if tokens < above and (tokens > 0 or state.num_decoding > 0):
            mask[level] = 1
            count += 1
        tokens = above
    return count


@compiled_part
def prefill_cap(state: Any, level: int) -> int:
    """Return the most prefill tokens of an iteration at a level."""
    return math.ceil(PREFILL_LEVELS[level] * state.max_num_batched_tokens)


@compiled_part
def first_legal(state: Any) -> int:
    """Return the lowest legal action."""
    action = 0
    while mask_of(state)[action] == 0:
        action += 1
    return action
