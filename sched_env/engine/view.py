"""Write the observation of a server; ``layout.py`` names and explains each number.

Most decisions are taken while time stands still: then a request is shown as before, perhaps in
another slot. So an observation is made of the one that was written last, which has to lie at the
same place and to be as it was: places in the queue know the slot that shows their request.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sched_env.compiled import compiled_inline, compiled_part
from sched_env.engine.arrivals import arrival_time_s
from sched_env.engine.cohort import progress_of
from sched_env.engine.either import either
from sched_env.engine.features import show_progress, show_rest
from sched_env.engine.layout import NUM_LEVELS
from sched_env.engine.ledger import next_step_s, paces, tpot_slack_s
from sched_env.engine.memory import (
    front_of,
    future_in,
    globals_in,
    mask_of,
    order_of,
    requests_of,
    running_of,
    slots_in,
    trace_of,
    waiter_at,
)
from sched_env.engine.prefetch import fetch_shown, fetch_waiter
from sched_env.engine.rises import rise, rises
from sched_env.engine.sizes import predicted_beyond

_URGENT_S = 0.5


@compiled_part
def view(state: Any) -> None:
    """Write the observation of a server whose mask is up to date."""
    if state.viewed_at != state.observation_at:
        _forget_view(state)
    _fetch_shown(state)
    out = globals_in(state)
    best = _best_density(state)
    _view_waiting(state, best, out)
    _view_running(state, best, out)
    _view_budgets(state, out)
    _view_queue(state, out)
    if state.privileged:
        _view_future(state, future_in(state))
    state.viewed_density = best
    state.viewed_clock_s = state.clock_s
    state.viewed_iteration = state.iteration
    state.viewed_free_blocks = state.free_blocks


@compiled_part
def _fetch_shown(state: Any) -> None:
    """Ask for all that has to be shown anew at once, for it lies apart."""
    running, num_running = running_of(state), state.num_running
    if not _time_stood_still(state):
        for k in range(min(state.num_front, state.num_waiting_slots)):
            fetch_waiter(state, k)
    if _running_changed(state):
        for j in range(min(num_running, state.num_running_slots)):
            fetch_shown(state, running[num_running - 1 - j].row)


@compiled_part
def _forget_view(state: Any) -> None:
    """Take no slot of the observation for written."""
    for k in range(state.num_front):
        order_of(state)[k].slot = -1
    state.num_unmoved = 0
    state.viewed_at = state.observation_at
    state.viewed_iteration = -1
    state.viewed_density = math.nan
    state.num_waiting_viewed = state.num_waiting_slots
    state.num_running_viewed = state.num_running_slots


@compiled_part
def _time_stood_still(state: Any) -> bool:
    """Tell whether neither time nor an iteration has passed since the last observation."""
    return state.clock_s == state.viewed_clock_s and state.iteration == state.viewed_iteration


@compiled_part
def _running_changed(state: Any) -> bool:
    """Tell whether running requests are to be shown anew.

    Besides time only preemptions and ends change them, which give blocks back.
    """
    return not _time_stood_still(state) or state.free_blocks != state.viewed_free_blocks


@compiled_part
def _best_density(state: Any) -> float:
    best = np.float32(-10.0)
    order = order_of(state)
    for k in range(min(state.num_front, state.num_waiting_slots)):
        best = max(best, order[k].density)
    return np.float64(best)  # differences to it are those of doubles


@compiled_part
def _view_waiting(state: Any, best: float, out: Any) -> None:
    """Write the waiting slots, and what they say together."""
    slots, mask, order = slots_in(state), mask_of(state), order_of(state)
    num_slots = state.num_waiting_slots
    shown = min(state.num_front, num_slots)
    _arrange_waiting(state, shown, best)
    if not _time_stood_still(state):
        _show_waits(state, shown)
    if state.free_blocks != state.viewed_free_blocks:
        _show_parts_of_free(state, shown)
    if best != state.viewed_density:
        _show_gaps(state, shown, best)
    urgent, late, first_s = 0.0, 0.0, state.clock_s
    for k in range(shown):
        place, slot = order[k], slots[k]
        slot.is_legal = mask[NUM_LEVELS + k]
        urgent += place.urgent_weight
        late += place.late_weight
        first_s = min(first_s, place.arrival_time_s)
    for k in range(shown, state.num_waiting_viewed):
        _clear(slots[k])
    state.num_waiting_viewed = shown
    out.urgent_weight = rise(urgent, 4.0)
    out.late_weight = rise(late, 4.0)
    out.longest_wait = rise(state.clock_s - first_s, 5.0)


@compiled_part
def _arrange_waiting(state: Any, shown: int, best: float) -> None:
    """Bring what the slots show of the first of the queue into the order that it has now.

    Slots move up where requests left from before them, down where one came in; what moves up
    while others move down is written anew, for its slot may have been overwritten.
    """
    slots, order, step = slots_in(state), order_of(state), 1.0 / state.num_waiting_slots
    if state.place_came_in:
        _move_down(state, shown)
    for k in range(max(state.num_unmoved, 0), shown):
        slot = order[k].slot
        if slot > k:
            slots[k] = slots[slot]
        elif slot < 0:
            _show_waiter(state, order[k], slots[k], best)
        order[k].slot = k
        slots[k].rank = k * step
    state.num_unmoved = state.front_size


@compiled_part
def _move_down(state: Any, shown: int) -> None:
    """Move the slots before which one came in, the last ones first."""
    slots, order = slots_in(state), order_of(state)
    for k in range(shown, state.num_front):
        order[k].slot = -1
    for k in range(shown - 1, state.num_unmoved - 1, -1):
        slot = order[k].slot
        if slot > k:
            order[k].slot = -1
        elif slot >= 0 and slot < k:
            slots[k] = slots[slot]
            order[k].slot = k
    state.place_came_in = 0


@compiled_part
def _show_waiter(state: Any, place: Any, slot: Any, best: float) -> None:
    """Show a waiting request that no slot shows yet."""
    waiter = front_of(state)[place.cell]
    slot.present = 1.0
    slot.is_running = 0.0
    slot.resting = waiter.resting
    slot.density_gap = _gap(place.density, best)
    slot.blocks_of_free = _part_of_free(place.whole_blocks, state.free_blocks)
    _show_wait(state.clock_s, place, waiter, slot)


@compiled_part
def _show_waits(state: Any, shown: int) -> None:
    """Show how long the first of the queue have waited by now."""
    front, slots, order, clock_s = front_of(state), slots_in(state), order_of(state), state.clock_s
    for k in range(shown):
        _show_wait(clock_s, order[k], front[order[k].cell], slots[k])


@compiled_part
def _show_parts_of_free(state: Any, shown: int) -> None:
    """Show what the first of the queue would take of the blocks that are free now."""
    slots, order, free_blocks = slots_in(state), order_of(state), state.free_blocks
    for k in range(shown):
        slots[k].blocks_of_free = _part_of_free(order[k].whole_blocks, free_blocks)


@compiled_part
def _show_gaps(state: Any, shown: int, best: float) -> None:
    """Show how far the densities of the first of the queue are from the best one."""
    slots, order = slots_in(state), order_of(state)
    for k in range(shown):
        slots[k].density_gap = _gap(order[k].density, best)


@compiled_part
def _gap(density: float, best: float) -> float:
    return max(5.0 * (density - best), -20.0)


@compiled_inline
def _show_wait(clock_s: float, place: Any, waiter: Any, slot: Any) -> None:
    """Show a waiting request as it is at the clock."""
    wait_s = clock_s - waiter.arrival_time_s
    pace_s = waiter.allowed_s - (clock_s - waiter.first_token_s)
    slack_s = _show_slack(wait_s, waiter, slot)
    # Products, for the processor cannot foresee who is late.
    place.urgent_weight = waiter.weight * (slack_s < _URGENT_S)
    place.late_weight = waiter.weight * (slack_s < 0.0)
    wait, pace = rises((wait_s, pace_s), (2.0, 0.5))
    has_tokens = slot.resting.outputs > 0.0
    slot.wait = wait
    slot.tpot_slack = either(has_tokens, pace, 0.0)
    slot.is_late = either(has_tokens, 0.0, wait_s > waiter.ttft_slo_s)


@compiled_part
def _part_of_free(blocks: int, free_blocks: int) -> float:
    return rise(float(blocks), free_blocks + 1.0)


@compiled_part
def _view_running(state: Any, best: float, out: Any) -> None:
    """Write the running slots, from the end of the batch order, and what all running ones say."""
    slots, mask = slots_in(state), mask_of(state)
    first, num_slots = state.num_waiting_slots, state.num_running_slots
    count = min(state.num_running, num_slots)
    has_changed = _running_changed(state)
    if has_changed:
        _show_running(state, count)
        for j in range(count, state.num_running_viewed):
            _clear(slots[first + j])
        state.num_running_viewed = count
        predicted, num_late = paces(state)
        out.running_decode = rise(predicted, 8192.0)
        out.decodes_at_risk = num_late * (1.0 / state.max_num_seqs)
    for j in range(count):
        slots[first + j].is_legal = mask[NUM_LEVELS + first + j]
    if has_changed or best != state.viewed_density:
        for j in range(count):
            slot = slots[first + j]
            slot.density_gap = min(_gap(slot.resting.density, best), 0.0)


@compiled_part
def _show_running(state: Any, count: int) -> None:
    """Show the running requests as they are now."""
    slots, running, requests = slots_in(state), running_of(state), requests_of(state)
    clock_s, free_blocks, pool = state.clock_s, state.free_blocks, state.num_blocks
    num_running, step = state.num_running, 1.0 / state.num_running_slots
    first = state.num_waiting_slots
    for j in range(count):
        position = num_running - 1 - j
        slot, seat = slots[first + j], running[position]
        request = requests[seat.row]
        left, outputs, computed, blocks = progress_of(state, position)
        decode_left = predicted_beyond(seat, outputs)
        slot.present = 1.0
        slot.is_running = 1.0
        slot.rank = j * step
        show_rest(request, slot.resting)
        slot.resting.preemptible = seat.preemptible
        show_progress(left, decode_left, blocks / pool, computed, outputs, slot.resting)
        wait_s = clock_s - request.arrival_time_s
        pace_s = tpot_slack_s(clock_s, seat, outputs)
        _show_slack(wait_s, request, slot)
        wait, pace, of_free = rises((wait_s, pace_s, blocks), (2.0, 0.5, free_blocks + 1.0))
        has_tokens = outputs > 0
        slot.wait, slot.blocks_of_free = wait, of_free
        slot.tpot_slack = either(has_tokens, pace, 0.0)
        slot.is_late = either(has_tokens, 0.0, wait_s > request.ttft_slo_s)


@compiled_inline
def _show_slack(wait_s: float, request: Any, slot: Any) -> float:
    """Write and return the TTFT slack.

    It is how long the request may still wait before a lone prefill would be too late.
    """
    slack_s = request.ttft_slo_s - wait_s - request.lone_prefill_s
    slot.short_slack = min(max(slack_s * 2.0, -1.0), 1.0)
    slot.middle_slack = min(max(slack_s * 0.5, -1.0), 1.0)
    slot.long_slack = min(max(slack_s * 0.125, -1.0), 1.0)
    return slack_s


@compiled_part
def _clear(slot: Any) -> None:
    """Write an empty slot."""
    slot.present = 0.0
    slot.is_running = 0.0
    slot.is_legal = 0.0
    slot.rank = 0.0
    slot.density_gap = 0.0
    slot.short_slack = 0.0
    slot.middle_slack = 0.0
    slot.long_slack = 0.0
    slot.blocks_of_free = 0.0
    slot.wait = 0.0
    slot.is_late = 0.0
    slot.tpot_slack = 0.0
    resting = slot.resting
    resting.prefill_left = 0.0
    resting.decode_left = 0.0
    resting.weight = 0.0
    resting.density = 0.0
    resting.blocks_of_pool = 0.0
    resting.preemptible = 0.0
    resting.computed = 0.0
    resting.outputs = 0.0
    resting.preemptions = 0.0
    resting.tpot_slo = 0.0


@compiled_part
def _view_budgets(state: Any, out: Any) -> None:
    seats = 1.0 / state.max_num_seqs
    budget = 1.0 / state.max_num_batched_tokens
    pool = 1.0 / state.num_blocks
    out.free_kv = state.free_blocks * pool
    out.ledger_kv = max(state.ledger_blocks * pool, -2.0)
    out.running = state.num_running * seats
    out.admitted = rise(state.num_admitted, 4.0)
    out.ledger_tokens = state.ledger_tokens * budget
    out.decoding = state.num_decoding * seats
    out.prefill_tokens = state.ledger_prefill_tokens * budget
    out.decode_context = min(state.decode_context_tokens * pool / state.block_size, 2.0)
    decode_step_s, full_step_s = next_step_s(state)
    out.decode_step = rise(decode_step_s, 0.05)
    out.full_step = rise(full_step_s, 0.05)
    out.shortage = state.ledger_blocks < 0
    out.news = state.news


@compiled_part
def _view_queue(state: Any, out: Any) -> None:
    beyond = float(max(state.num_waiting - state.num_waiting_slots, 0))
    fitting, weight = float(state.num_fitting), max(state.waiting_weight, 0.0)
    shown = rises((float(state.num_waiting), beyond, weight, fitting), (16.0, 16.0, 16.0, 4.0))
    out.waiting, out.beyond_slots, out.waiting_weight, out.fitting = shown
    prefill, decode = max(state.waiting_prefill_tokens, 0.0), max(state.waiting_decode_tokens, 0.0)
    shown = rises((prefill, decode, state.arrival_rate_rps), (8192.0, 8192.0, 5.0))
    out.waiting_prefill, out.waiting_decode, out.arrival_rate = shown


@compiled_part
def _view_future(state: Any, out: Any) -> None:
    """Write what no policy may know: the arrivals to come and the true lengths."""
    out.next_arrival_1 = _time_to_arrival(state, 0, 1.0)
    out.next_arrival_4 = _time_to_arrival(state, 3, 2.0)
    out.next_arrival_16 = _time_to_arrival(state, 15, 4.0)
    out.next_arrival_64 = _time_to_arrival(state, 63, 16.0)
    out.next_tokens_16 = rise(_coming_tokens(state, 16), 16384.0)
    out.next_tokens_64 = rise(_coming_tokens(state, 64), 65536.0)
    out.true_running_decode = rise(state.true_decode_tokens, 8192.0)
    left = 0.0
    for k in range(min(state.num_front, state.num_waiting_slots)):
        request = requests_of(state)[waiter_at(state, k).row]
        left += request.stop_at_tokens - request.num_output_tokens
    out.true_shown_decode = rise(left, 8192.0)


@compiled_part
def _time_to_arrival(state: Any, ahead: int, half_s: float) -> float:
    time_s = arrival_time_s(state, state.next_row + ahead)
    if math.isinf(time_s):
        return 1.0
    return rise(max(time_s - state.clock_s, 0.0), half_s)


@compiled_part
def _coming_tokens(state: Any, count: int) -> float:
    last = min(state.next_row + count, state.num_rows) - 1
    if last < state.next_row:
        return 0.0
    first = trace_of(state)[state.trace_row + state.next_row]
    final = trace_of(state)[state.trace_row + last]
    tokens = final.cumulative_tokens - first.cumulative_tokens
    return tokens + final.prompt_tokens + final.output_tokens
