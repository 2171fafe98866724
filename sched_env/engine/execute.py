"""Run the batch: move the clock, let tokens out, end what is complete.

A stretch of iterations in which nothing can change but the lengths of the same decoding requests
is run at once ("jump-ahead"): times are added one iteration at a time, so the clock is the same to
the last bit, and what the requests get is added up once.
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.cost.step_time import (
    decode_s,
    decode_share_s,
    is_beyond_reach,
    overhead_s,
    step_time_s,
)
from sched_env.engine.arrivals import next_alarm_s
from sched_env.engine.cohort import advance, fall_out, has_last_token, place_after, step_out
from sched_env.engine.ending import remove_running, settle
from sched_env.engine.flight import land, launch, make_room_for_batch
from sched_env.engine.memory import (
    cost_of,
    growth_of,
    itl_counts_of,
    requests_of,
    running_of,
)
from sched_env.engine.output import append_tokens, count_gaps, itl_bin
from sched_env.engine.pool import know_blocks
from sched_env.engine.records import FINISHED
from sched_env.engine.sizes import num_tokens


@compiled_part
def execute(state: Any, may_jump: bool, until_s: float) -> None:
    """Run the scheduled batch once, or for as many iterations as nothing else can happen.

    With asynchronous scheduling the batch is sent behind the one in flight, which ends now.
    """
    if state.async_scheduling:
        launch(state, _batch_time_s(state))
        if state.num_in_flight == 2:
            end_oldest_batch(state)
        state.iteration += 1
        return
    if state.batch_tokens == 0:
        state.iteration += 1
        return
    iterations = 1
    only_decodes = state.batch_decodes == state.num_running and state.batch_moved_blocks == 0
    if may_jump and state.jump_ahead and only_decodes:
        iterations = _iterations_to_next_finish(state)
    if iterations > 1:
        iterations = _run_clock_ahead(state, iterations, until_s)
        state.num_executed_steps += iterations - 1
    else:
        state.step_time_s = _batch_time_s(state)
        _tick(state, state.num_blocks - state.free_blocks)
    state.iteration += iterations - 1  # what ends now ends in the last of them
    deliver(state, iterations)
    state.iteration += 1


@compiled_part
def end_oldest_batch(state: Any) -> None:
    """Move the clock to the end of the oldest batch in flight and apply its outputs."""
    make_room_for_batch(state)
    state.step_time_s = state.oldest_step_s
    _tick(state, state.num_blocks - state.free_blocks)
    land(state)


@compiled_part
def complete(state: Any, step_time_s: float) -> None:
    """End the batch that was formed, ``step_time_s`` after it began."""
    state.step_time_s = step_time_s
    _tick(state, state.num_blocks - state.free_blocks)
    deliver(state, 1)
    state.iteration += 1


@compiled_part
def _batch_time_s(state: Any) -> float:
    """Return how long the batch takes, moving blocks of swapped requests included."""
    if state.batch_tokens == 0:
        return 0.0
    computing_s = step_time_s(
        cost_of(state),
        state.batch_decodes,
        state.batch_context_tokens,
        state.batch_prefill_tokens,
        state.batch_attention,
        _batch_size(state),
    )
    state.num_steps_beyond_table += is_beyond_reach(
        cost_of(state),
        state.batch_decodes,
        state.batch_context_tokens,
        state.batch_prefill_tokens,
        state.batch_attention,
    )
    return computing_s + state.batch_moved_blocks * state.swap_s_per_block


@compiled_part
def _batch_size(state: Any) -> int:
    if state.batch_decodes == state.batch_tokens:
        return state.batch_decodes
    size = state.cohort_size
    for i in range(state.cohort_size, state.num_running):
        size += running_of(state)[i].num_scheduled_tokens > 0
    return size


@compiled_part
def _tick(state: Any, used_blocks: int) -> None:
    state.clock_s += state.step_time_s
    state.busy_s += state.step_time_s
    state.kv_block_seconds += used_blocks * state.step_time_s


@compiled_part
def _iterations_to_next_finish(state: Any) -> int:
    if state.cohort_size == state.num_running:
        return state.cohort_ends_at_tokens - state.cohort_tokens
    fall_out(state)
    left = running_of(state)[0].stop_at_tokens - running_of(state)[0].num_output_tokens
    for i in range(1, state.num_running):
        request = running_of(state)[i]
        left = min(left, request.stop_at_tokens - request.num_output_tokens)
    return left


@compiled_part
def _run_clock_ahead(state: Any, iterations: int, until_s: float) -> int:
    """Advance the clock over up to ``iterations`` equal batches; return how many ran.

    It adds what ``_tick`` would, one iteration at a time, with the sums in registers.
    """
    if state.cohort_size == 0:
        _plan_growth(state)
    alarm_s = min(until_s, state.next_arrival_s, next_alarm_s(state))
    cost, growth, itl_counts = cost_of(state), growth_of(state), itl_counts_of(state)
    context, num_decodes = state.batch_context_tokens, state.batch_decodes
    num_blocks, free_blocks = state.num_blocks, state.free_blocks
    clock_s, busy_s, block_seconds = state.clock_s, state.busy_s, state.kv_block_seconds
    step_s, num_beyond = 0.0, 0
    is_formula = not (cost.has_table or cost.has_one_regime)
    own_s, share_s = overhead_s(cost, num_decodes), decode_share_s(cost, num_decodes)
    done, place = 0, state.cohort_place
    while done < iterations:
        if done > 0:
            need = growth[place]
            if clock_s >= alarm_s or need > free_blocks:
                break
            place = place_after(state, place)
            free_blocks -= need
            context += num_decodes
        if is_formula:
            step_s = own_s + decode_s(cost, share_s, context)
        else:
            step_s = step_time_s(cost, num_decodes, context, 0, 0.0, num_decodes)
            num_beyond += is_beyond_reach(cost, num_decodes, context, 0, 0.0)
        started_s = clock_s
        clock_s += step_s
        busy_s += step_s
        block_seconds += (num_blocks - free_blocks) * step_s
        if done == 0:
            state.first_end_s = clock_s
        elif itl_counts.size > 0:
            itl_counts[itl_bin(clock_s - started_s)] += num_decodes
        done += 1
    state.free_blocks, state.cohort_place, state.step_time_s = free_blocks, place, step_s
    state.clock_s, state.busy_s, state.kv_block_seconds = clock_s, busy_s, block_seconds
    state.num_steps_beyond_table += num_beyond
    return done


@compiled_part
def _plan_growth(state: Any) -> None:
    """Count the requests that need a block for each of the next tokens, where there is no cohort.

    A request's last block always holds a token, so there is room for less than a block.
    """
    block_size = state.block_size
    state.cohort_place = 0
    growth_of(state)[:] = 0
    for i in range(state.num_running):
        request = running_of(state)[i]
        growth_of(state)[request.num_blocks * block_size - request.num_computed_tokens] += 1


@compiled_part
def deliver(state: Any, iterations: int) -> None:
    """Append the output tokens of ``iterations`` batches and close the seats of the finished."""
    state.num_computed_tokens += state.batch_tokens + (iterations - 1) * state.batch_decodes
    if state.batch_decodes > 0:
        state.progress_iteration = state.iteration
    num_new = _deliver_to_cohort(state, iterations)
    first, clock_s, running = state.cohort_size, state.clock_s, running_of(state)
    kept = first
    knows_blocks = iterations > 1 and state.enable_prefix_caching
    for position in range(first, state.num_running):
        request = running[position]
        if request.num_scheduled_tokens > 0:
            request.num_scheduled_tokens = 0
            if request.num_computed_tokens == num_tokens(request):
                append_tokens(state, request, iterations, clock_s)
                num_new += iterations
            if knows_blocks:
                know_blocks(state, request, request.num_computed_tokens)
            if request.num_output_tokens == request.stop_at_tokens:
                settle(state, request, FINISHED, requests_of(state)[request.row].stop_reason)
                continue
        if kept < position:
            running[kept] = request
        kept += 1
    state.num_output_tokens += num_new
    state.num_running = kept


@compiled_part
def _deliver_to_cohort(state: Any, iterations: int) -> int:
    """Do the same for the cohort; return how many tokens are new."""
    num_members = state.cohort_size
    if num_members == 0 or not state.cohort_is_scheduled:
        return 0
    if state.num_itl_bins > 0:
        count_gaps(state, state.cohort_token_s, iterations, num_members)
    advance(state, iterations)
    position = 0
    if state.cohort_tokens < state.cohort_ends_at_tokens:
        position = num_members
    while position < state.cohort_size:
        if has_last_token(state, position):
            step_out(state, position)
            seat = running_of(state)[position]
            settle(state, seat, FINISHED, requests_of(state)[seat.row].stop_reason)
            remove_running(state, position)
        else:
            position += 1
    return num_members * iterations
