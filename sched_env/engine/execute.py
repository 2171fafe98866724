"""Run the batch: move the clock, let tokens out, end what is complete.

A stretch of iterations in which nothing can change but the lengths of the same decoding requests
is run at once ("jump-ahead"): times are added one iteration at a time, so the clock is the same to
the last bit, and each request is updated once.
"""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part
from sched_env.cost.step_time import step_time_s
from sched_env.engine.ending import first_token, settle
from sched_env.engine.events import record
from sched_env.engine.records import EVENT_FIRST_TOKEN, FINISHED
from sched_env.engine.sizes import blocks_for, num_tokens

ITL_BINS = 2048
ITL_FIRST_S = 1e-5
ITL_RATIO = 1.01  # bin edges grow by 1 %: a percentile is known to 1 %


@compiled_part
def itl_bin(interval_s: float) -> int:
    """Return the bin of an inter-token latency."""
    if interval_s <= ITL_FIRST_S:
        return 0
    index = int(math.log(interval_s / ITL_FIRST_S) / math.log(ITL_RATIO))
    return min(index, ITL_BINS - 1)


@compiled_part
def execute(server: Any, may_jump: bool, until_s: float) -> None:
    """Run the scheduled batch once, or for as many iterations as nothing else can happen."""
    state = server.state
    if state.batch_tokens == 0:
        state.iteration += 1
        return
    iterations = 1
    if may_jump and state.jump_ahead and state.batch_decodes == state.num_running:
        iterations = _iterations_to_next_finish(server)
    if iterations > 1:
        iterations = _run_clock_ahead(server, iterations, until_s)
    else:
        _run_clock(server)
    deliver(server, iterations)
    state.iteration += iterations


@compiled_part
def _run_clock(server: Any) -> None:
    state = server.state
    state.step_time_s = step_time_s(
        server.cost,
        state.batch_decodes,
        state.batch_context_tokens,
        state.batch_prefill_tokens,
        state.batch_attention,
        _batch_size(server),
    )
    _tick(state, state.num_blocks - state.free_blocks)


@compiled_part
def _batch_size(server: Any) -> int:
    state = server.state
    if state.batch_decodes == state.batch_tokens:
        return state.batch_decodes
    size = 0
    for i in range(state.num_running):
        size += server.running[i].num_scheduled_tokens > 0
    return size


@compiled_part
def _tick(state: Any, used_blocks: int) -> None:
    state.clock_s += state.step_time_s
    state.busy_s += state.step_time_s
    state.kv_block_seconds += used_blocks * state.step_time_s


@compiled_part
def _iterations_to_next_finish(server: Any) -> int:
    left = server.running[0].stop_at_tokens - server.running[0].num_output_tokens
    for i in range(1, server.state.num_running):
        request = server.running[i]
        left = min(left, request.stop_at_tokens - request.num_output_tokens)
    return left


@compiled_part
def _run_clock_ahead(server: Any, iterations: int, until_s: float) -> int:
    """Advance the clock over up to ``iterations`` equal batches; return how many ran."""
    state = server.state
    _plan_growth(server)
    alarm_s = min(until_s, state.next_arrival_s)
    if state.num_expiries > 0:
        alarm_s = min(alarm_s, server.expiries[0].key)
    context = state.batch_context_tokens
    num_decodes = state.batch_decodes
    started_s = state.clock_s
    done = 0
    while done < iterations:
        if done > 0:
            need = server.growth[(done - 1) % state.block_size]
            if state.clock_s >= alarm_s or need > state.free_blocks:
                break
            state.free_blocks -= need
            context += num_decodes
            started_s = state.clock_s
        state.step_time_s = step_time_s(server.cost, num_decodes, context, 0, 0.0, num_decodes)
        _tick(state, state.num_blocks - state.free_blocks)
        if done == 0:
            state.first_end_s = state.clock_s
        elif server.itl_counts.size > 0:
            server.itl_counts[itl_bin(state.clock_s - started_s)] += num_decodes
        done += 1
    return done


@compiled_part
def _plan_growth(server: Any) -> None:
    """Count, for each of the next ``block_size`` tokens, the requests that need a block for it."""
    block_size = server.state.block_size
    server.growth[:block_size] = 0
    for i in range(server.state.num_running):
        request = server.running[i]
        room = request.num_blocks * block_size - request.num_computed_tokens
        server.growth[room % block_size] += 1


@compiled_part
def deliver(server: Any, iterations: int) -> None:
    """Append the output tokens of ``iterations`` batches and close the seats of the finished."""
    state = server.state
    state.num_computed_tokens += state.batch_tokens + (iterations - 1) * state.batch_decodes
    kept = 0
    for position in range(state.num_running):
        request = server.running[position]
        if request.num_scheduled_tokens > 0:
            request.num_scheduled_tokens = 0
            if request.num_computed_tokens == num_tokens(request):
                _append(server, request, iterations)
            if request.num_output_tokens == request.stop_at_tokens:
                settle(server, request, FINISHED, request.stop_reason)
                continue
        if kept < position:
            server.running[kept] = server.running[position]
        kept += 1
    state.num_running = kept


@compiled_part
def _append(server: Any, request: Any, iterations: int) -> None:
    """Append ``iterations`` output tokens to a request whose tokens are all computed."""
    state = server.state
    if request.num_output_tokens == 0:
        first_token(server, request)
        record(server, EVENT_FIRST_TOKEN, request, 1, 0)
    elif server.itl_counts.size > 0:
        first_gap_s = state.clock_s - request.last_token_s
        if iterations > 1:
            first_gap_s = state.first_end_s - request.last_token_s
        server.itl_counts[itl_bin(first_gap_s)] += 1
    request.last_token_s = state.clock_s
    request.num_output_tokens += iterations
    request.num_computed_tokens += iterations - 1
    state.num_output_tokens += iterations
    if iterations > 1:
        request.num_blocks = blocks_for(request.num_computed_tokens, state.block_size)
