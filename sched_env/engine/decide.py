"""The decision process: what may be chosen before an iteration, and what a choice does.

All decisions come at a frozen clock, before the scheduler forms its batch by the unchanged rules
on the order that was chosen. A ledger of blocks, seats and tokens tells what still fits, counted
with all prefill allowed. An action is one of

- *proceed* at prefill level l: prefill tokens of this iteration are capped at that part of
  ``max_num_batched_tokens``;
- *admit* waiting slot k;
- *preempt* running slot j (slot 0 is the last of the batch order).
"""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part
from sched_env.cost.step_time import step_time_s
from sched_env.engine.admission import admit, fits, reserved_blocks, still_needed
from sched_env.engine.arrivals import expire, receive
from sched_env.engine.batch import (
    close_batch,
    long_prefill_cap,
    open_batch,
    prefill_waits,
    tokens_to_schedule,
    tokens_wanted,
)
from sched_env.engine.ending import end_running
from sched_env.engine.execute import complete, end_oldest_batch, execute
from sched_env.engine.flight import is_stale
from sched_env.engine.layout import FULL_LEVEL, NUM_LEVELS, PREFILL_LEVELS
from sched_env.engine.memory import (
    admitted_of,
    cost_of,
    mask_of,
    order_of,
    requests_of,
    running_of,
    waiter_at,
)
from sched_env.engine.pool import cached_blocks
from sched_env.engine.preemption import preempt
from sched_env.engine.prefetch import (
    fetch_cell,
    fetch_coming,
    fetch_free_cell,
    fetch_next_waiting,
    fetch_request,
)
from sched_env.engine.progress import break_livelock, drop_stuck_head
from sched_env.engine.records import KV_CAPACITY, NO_LIMIT, RESERVE_NOTHING
from sched_env.engine.reward import settle_waiting
from sched_env.engine.schedule import schedule_running
from sched_env.engine.sizes import (
    blocks_for,
    blocks_to_grow,
    decode_tokens_left,
    is_decoding,
    is_next_decode,
    tokens_left,
)
from sched_env.engine.waiting import dequeue, enqueue


@compiled_part
def prefill_cap(state: Any, level: int) -> int:
    """Return the most prefill tokens of an iteration at a level."""
    return math.ceil(PREFILL_LEVELS[level] * state.max_num_batched_tokens)


@compiled_part
def open_iteration(state: Any, key: Any) -> None:
    """Bring the world to the next point of decision: arrivals, deadlines, order, ledger.

    Where nothing is left to run, the clock moves on to the next arrival; past the last one the
    run is terminated, past the horizon truncated. The last ledger is what the final observation
    shows.
    """
    while not (state.terminated or state.truncated):
        if state.clock_s >= state.horizon_s:
            state.truncated = 1
            break
        receive(state, key)
        expire(state)
        if state.num_running == 0 and state.num_waiting == 0:
            _idle(state)
            continue
        if state.batch_prefill_tokens > 0:
            put_decodes_first(state)  # only a batch with prefill makes a request decode
        break_livelock(state)
        read_ledger(state)
        if is_stuck(state):
            end_running(state, 0, KV_CAPACITY)
            continue
        state.num_evicted_now = 0
        state.deciding = 1
        return
    state.num_fitting = 0
    put_decodes_first(state)
    read_ledger(state)


@compiled_part
def is_stuck(state: Any) -> bool:
    """Tell whether a request is alone and cannot grow, whatever is decided."""
    return state.ledger_blocks < 0 and state.num_running == 1 and state.num_admitted == 0


@compiled_part
def _idle(state: Any) -> None:
    if state.num_in_flight > 0:
        end_oldest_batch(state)
    elif state.next_arrival_s == math.inf:
        state.terminated = 1
    else:
        settle_waiting(state)
        state.clock_s = min(state.next_arrival_s, state.horizon_s)


@compiled_part
def put_decodes_first(state: Any) -> None:
    """Order the running requests: decoding ones first, each group as it was."""
    num_decoding = 0
    for position in range(state.num_running):
        if not is_decoding(running_of(state)[position]):
            continue
        if num_decoding < position:
            seats, spare = running_of(state), state.seat_capacity
            seats[spare] = seats[position]
            for i in range(position, num_decoding, -1):
                seats[i] = seats[i - 1]
            seats[num_decoding] = seats[spare]
        num_decoding += 1


@compiled_part
def read_ledger(state: Any) -> None:
    """Count what the running requests and those admitted so far will take, prefill in full."""
    running, block_size = running_of(state), state.block_size
    state.chunk_cap = long_prefill_cap(state)
    state.defers_prefill = prefill_waits(state)
    position, blocks, context, at_risk, predicted, actual = _read_decodes(state)
    budget, prefill, num_decoding = state.max_num_batched_tokens - position, 0, position
    for i in range(position, state.num_running):
        request = running[i]
        outputs = request.num_output_tokens
        tokens = min(tokens_wanted(state, request), budget)
        blocks -= blocks_to_grow(request, tokens, block_size)
        budget -= tokens
        predicted += decode_tokens_left(request)
        actual += request.stop_at_tokens - outputs
        if is_decoding(request):
            num_decoding += 1
            context += request.prompt_tokens + outputs
            at_risk += tpot_slack_s(state, request) < 0.0
        else:
            prefill += tokens
    state.ledger_blocks = blocks
    state.ledger_tokens = budget
    state.ledger_prefill_tokens = prefill
    state.num_decoding = num_decoding
    state.decode_context_tokens = context
    state.decodes_at_risk = at_risk
    state.running_decode_tokens = predicted
    state.true_decode_tokens = actual
    state.ledger_reserved = reserved_blocks(state)
    for i in range(state.num_admitted):
        _enter(state, requests_of(state)[admitted_of(state)[i]])
    _estimate_steps(state)


@compiled_part
def _read_decodes(state: Any) -> tuple[int, int, int, int, float, int]:
    """Count the decodes that stand first, and what they take of blocks and have left to do.

    It is what the rules come to for a decode, which wants one token. Nothing is written and the
    processor has nothing to foresee, for most requests of most servers are decodes.
    """
    running, block_size = running_of(state), state.block_size
    blocks, context, at_risk, predicted, actual = state.free_blocks, 0, 0, 0.0, 0
    position, most = 0, min(state.num_running, state.max_num_batched_tokens)
    if state.async_scheduling:
        most = 0
    while position < most and is_next_decode(running[position]):
        seat = running[position]
        outputs = seat.num_output_tokens
        blocks -= seat.num_computed_tokens == seat.num_blocks * block_size
        context += seat.prompt_tokens + outputs
        at_risk += tpot_slack_s(state, seat) < 0.0
        predicted += decode_tokens_left(seat)
        actual += seat.stop_at_tokens - outputs
        position += 1
    return position, blocks, context, at_risk, predicted, actual


@compiled_part
def _enter(state: Any, request: Any) -> None:
    """Charge the ledger with the prefill of an admitted request."""
    tokens = min(_tokens_to_prefill(state, request), state.ledger_tokens)
    state.ledger_blocks -= blocks_to_grow(request, tokens, state.block_size)
    state.ledger_reserved += still_needed(state, request)
    state.ledger_tokens -= tokens
    state.ledger_prefill_tokens += tokens


@compiled_part
def _estimate_steps(state: Any) -> None:
    """Estimate the next step's time with decodes only and with all prefill."""
    decodes, context = state.num_decoding, state.decode_context_tokens
    state.next_decode_s = step_time_s(cost_of(state), decodes, context, 0, 0.0, decodes)
    prefill = state.ledger_prefill_tokens
    attention = 0.5 * prefill * prefill
    state.next_full_s = step_time_s(
        cost_of(state), decodes, context, prefill, attention, decodes + 1
    )


@compiled_part
def tpot_slack_s(state: Any, request: Any) -> float:
    """Return how far a decoding request is ahead (+) or behind (-) its TPOT SLO, in seconds."""
    allowed_s = request.tpot_slo_s * request.num_output_tokens
    return allowed_s - (state.clock_s - request.first_token_s)


@compiled_part
def has_seat(state: Any) -> bool:
    """Tell whether ``max_num_active_seqs`` allows one more."""
    return state.num_running + state.num_admitted < state.max_num_active_seqs


@compiled_part
def has_blocks(state: Any, request: Any) -> bool:
    """Tell whether the ledger holds the blocks to admit a waiting request."""
    chunk = min(_tokens_to_prefill(state, request), max(state.ledger_tokens, 1))
    free_blocks = state.ledger_blocks
    if state.reserve_outputs != RESERVE_NOTHING:
        free_blocks = state.free_blocks - state.ledger_reserved
    return fits(state, request, chunk, free_blocks, state.num_running + state.num_admitted > 0)


@compiled_part
def _tokens_to_prefill(state: Any, request: Any) -> int:
    """Return how many tokens of a waiting request one batch would take, whatever its budget."""
    left = tokens_left(request) - cached_blocks(state, request) * state.block_size
    return min(left, state.chunk_cap)


@compiled_part
def _is_held_back(state: Any, request: Any) -> bool:
    """Tell whether a waiting request cannot be admitted now, whatever the blocks and seats."""
    if is_stale(request):
        return True
    if not (state.defers_prefill or not state.enable_chunked_prefill):
        return False
    tokens = _tokens_to_prefill(state, request)
    return (state.defers_prefill and tokens > 1) or tokens > state.ledger_tokens


@compiled_part
def may_move(state: Any, request: Any) -> bool:
    """Tell whether a waiting request has not changed place in this iteration yet.

    A running one has not: it was scheduled in an earlier iteration.
    """
    return request.moved_at_iteration != state.iteration


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
def first_legal(state: Any) -> int:
    """Return the lowest legal action."""
    action = 0
    while mask_of(state)[action] == 0:
        action += 1
    return action


@compiled_part
def apply(state: Any, key: Any, action: int) -> None:
    """Do a legal action."""
    if action < NUM_LEVELS:
        _proceed(state, key, action)
    elif action < NUM_LEVELS + state.num_waiting_slots:
        _choose(state, action - NUM_LEVELS)
    else:
        position = state.num_running - 1 - (action - NUM_LEVELS - state.num_waiting_slots)
        fetch_request(state, running_of(state)[position].row)
        fetch_free_cell(state)
        preempt(state, key, position)
        state.num_evicted_now += 1
        read_ledger(state)
        if is_stuck(state):
            end_running(state, 0, KV_CAPACITY)
            read_ledger(state)


@compiled_part
def _choose(state: Any, slot: int) -> None:
    """Admit a waiting slot: it will run behind those chosen before it."""
    row = waiter_at(state, slot).row
    fetch_request(state, row)
    fetch_cell(state, slot)
    fetch_next_waiting(state)
    request = requests_of(state)[row]
    admitted_of(state)[state.num_admitted] = row
    state.num_admitted += 1
    request.moved_at_iteration = state.iteration
    dequeue(state, slot)
    _enter(state, request)
    _estimate_steps(state)


@compiled_part
def _proceed(state: Any, key: Any, level: int) -> None:
    """Form the batch and run it; as many times as nobody would be asked, if it may jump.

    The batch of a live server runs elsewhere, until :func:`end_measured_batch`.
    """
    _fetch_batch(state)
    cap = prefill_cap(state, level)
    nothing_new = state.num_admitted == 0 and state.num_evicted_now == 0
    may_jump = nothing_new and state.num_fitting == 0 and not state.defers_prefill
    state.news = 0
    state.deciding = 0
    open_batch(state)
    schedule_running(state, key, cap)
    for i in range(state.num_admitted):
        request = requests_of(state)[admitted_of(state)[i]]
        tokens = _first_chunk(state, request, cap)
        if tokens > 0:
            admit(state, request, tokens)
        else:
            enqueue(state, key, request)
    state.num_admitted = 0
    close_batch(state)
    if state.num_evicted_now == 0:
        drop_stuck_head(state)
    if state.live and state.batch_tokens > 0:
        state.measuring = 1
    else:
        execute(state, may_jump, state.horizon_s)


@compiled_part
def _fetch_batch(state: Any) -> None:
    """Ask for what lies apart and an iteration will look at: who is admitted, who comes next."""
    for i in range(state.num_admitted):
        fetch_request(state, admitted_of(state)[i])
    fetch_coming(state)


@compiled_part
def _first_chunk(state: Any, request: Any, cap: int) -> int:
    """Return the tokens of an admitted request that the batch takes under a prefill cap."""
    if not state.enable_prefix_caching:
        return tokens_to_schedule(state, request, cap)
    tokens = _tokens_to_prefill(state, request)
    tokens = min(tokens, state.max_num_batched_tokens - state.batch_tokens)
    tokens = min(tokens, cap - state.batch_prefill_tokens)
    others_run = state.num_running > 0
    has_room = tokens > 0 and fits(state, request, tokens, state.free_blocks, others_run)
    return tokens if has_room else 0


@compiled_part
def settle_decisions(state: Any, key: Any) -> None:
    """Go on until there are two legal actions or more, or the run has ended; fill the mask.

    A sole legal action is applied unasked. A batch whose time is being measured stops it too.
    """
    while not state.measuring:
        if not state.deciding:
            open_iteration(state, key)
        count = legal_actions(state)
        if count > 1 or state.terminated or state.truncated:
            return
        apply(state, key, first_legal(state))


@compiled_part
def end_measured_batch(state: Any, key: Any, step_time_s: float) -> None:
    """End the batch of a live server after its measured time, and go on as after any other."""
    state.measuring = 0
    complete(state, step_time_s)
    settle_decisions(state, key)
    if not state.measuring:
        settle_waiting(state)


@compiled_part
def step(state: Any, key: Any, action: int) -> None:
    """Take one decision and go on to the next one.

    The mask holds the legal actions before and after. An illegal action is counted and replaced
    by full proceed, or by the lowest legal action where that is illegal too.
    """
    state.reward = 0.0
    state.step_start_s = state.clock_s
    state.waiting_since_s = state.clock_s
    state.decisions += 1
    state.invalid_actions = 0
    mask = mask_of(state)
    if action < 0 or action >= mask.size or mask[action] == 0:
        state.invalid_actions = 1
        action = FULL_LEVEL if mask[FULL_LEVEL] else first_legal(state)
    if state.terminated or state.truncated:
        return
    apply(state, key, action)
    settle_decisions(state, key)
    if not state.measuring:
        settle_waiting(state)
