"""What happens to requests by the clock alone: they arrive, miss deadlines, are shed, time out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.cost.step_time import lone_prefill_s
from sched_env.engine.batch import never_fits_a_batch
from sched_env.engine.cohort import step_out
from sched_env.engine.ending import (
    end,
    hopeless_from_s,
    is_out_of_reach,
    miss,
    remove_running,
    settle,
)
from sched_env.engine.events import record
from sched_env.engine.heap import drop_top, push
from sched_env.engine.memory import (
    classes_of,
    cost_of,
    expiries_of,
    requests_of,
    running_of,
    trace_of,
)
from sched_env.engine.records import (
    EVENT_ARRIVE,
    MAX_MODEL_LEN,
    NOT_ENDED,
    NOT_IN_FLIGHT,
    REJECTED,
    RUNNING,
    SHED,
    STOP,
    TIMED_OUT,
    TIMEOUT,
    TOO_LARGE,
    WAITING,
)
from sched_env.engine.reward import punish_waiting
from sched_env.engine.sizes import blocks_for
from sched_env.engine.waiting import enqueue, is_waiting, take_out
from sched_env.workload.service_classes import (
    draw_class,
    draw_predicted_tokens,
    draw_slo_jitter,
)

# What an entry of the expiry heap means (its second_key).
_BY_TIMEOUT, _BY_DEADLINE = 1.0, 0.0


@compiled_part
def arrival_time_s(state: Any, row: int) -> float:
    """Return when ``row`` of this run arrives; infinity past the last one."""
    if row >= state.num_rows:
        return np.inf
    recorded_s = trace_of(state)[state.trace_row + row].arrival_time_s
    return (recorded_s - state.trace_start_s) * state.interval_scale


@compiled_part
def receive(state: Any, key: Any) -> None:
    """Let everything that has arrived by now wait."""
    while state.next_arrival_s <= state.clock_s:
        row = state.next_row
        fill(state, row)
        _note_arrival_rate(state)
        state.next_row += 1
        state.next_arrival_s = arrival_time_s(state, state.next_row)
        submit(state, key, row)


@compiled_part
def _note_arrival_rate(state: Any) -> None:
    """Follow the arrival rate with a memory of 8 s."""
    later_s = arrival_gap_s(state)
    decay = math.exp(-later_s / 8.0)
    state.arrival_rate_rps = state.arrival_rate_rps * decay + 1.0 / 8.0
    state.last_arrival_s = state.next_arrival_s


@compiled_part
def arrival_gap_s(state: Any) -> float:
    """Return the time between the last arrival and the one at hand."""
    return max(state.next_arrival_s - state.last_arrival_s, 0.0)


@compiled_part
def fill(state: Any, row: int) -> None:
    """Write the request of a trace row into the table, with what the seed draws for it."""
    index = state.trace_row + row
    source = trace_of(state)[index]
    request = requests_of(state)[row]
    reset(request, row)
    request.arrival_time_s = arrival_time_s(state, row)
    request.prompt_tokens = source.prompt_tokens
    request.output_tokens = source.output_tokens
    request.stop_at_tokens = source.output_tokens
    request.stop_reason = STOP
    if source.prompt_tokens + source.output_tokens > state.max_model_len:
        request.stop_at_tokens = max(state.max_model_len - source.prompt_tokens, 1)
        request.stop_reason = MAX_MODEL_LEN
    request.service_class = source.service_class
    if source.service_class < 0:
        request.service_class = draw_class(classes_of(state), state.seed, index)
    service = classes_of(state)[request.service_class]
    jitter = draw_slo_jitter(state.seed, index)
    request.weight = service.weight
    request.priority = source.priority
    if math.isnan(source.priority):
        request.priority = service.weight
    request.lone_prefill_s = lone_prefill_s(
        cost_of(state), source.prompt_tokens, state.max_num_batched_tokens
    )
    request.token_time_s = state.token_time_s
    own_ttft_s = state.slo_factor * service.ttft_slo_s * jitter
    request.ttft_slo_s = own_ttft_s + 2.0 * request.lone_prefill_s
    request.tpot_slo_s = state.slo_factor * service.tpot_slo_s
    request.predicted_output_tokens = _predict(state, index)


@compiled_part
def reset(request: Any, row: int) -> None:
    """Make a row of the table a request to which nothing has happened."""
    request.row = row
    request.tie = row
    request.first_scheduled_s = np.nan
    request.first_token_s = np.nan
    request.last_token_s = np.nan
    request.finish_s = np.nan
    request.num_computed_tokens = 0
    request.num_output_tokens = 0
    request.num_blocks = 0
    request.num_output_placeholders = 0
    request.in_flight = NOT_IN_FLIGHT
    request.is_prefill_chunk = 0
    request.num_known_blocks = 0
    request.num_cached_tokens = 0
    request.passes_waited = 0
    request.times_passed = 0
    request.class_tokens = 0.0
    request.num_preemptions = 0
    request.num_recomputed_tokens = 0
    request.moved_at_iteration = -1
    request.status = WAITING
    request.finish_reason = NOT_ENDED
    request.preemptible = 1
    request.missed = 0


@compiled_part
def _predict(state: Any, index: int) -> float:
    source = trace_of(state)[index]
    if not math.isnan(source.predicted_output_tokens):
        return source.predicted_output_tokens
    if math.isnan(state.length_sigma):
        return state.mean_output_tokens
    return draw_predicted_tokens(source.output_tokens, state.length_sigma, state.seed, index)


@compiled_part
def submit(state: Any, key: Any, row: int) -> None:
    """Take in the request of a filled row: reject it if it can never run, else let it wait."""
    request = requests_of(state)[row]
    state.weight_injected += request.weight
    state.news = 1
    record(state, EVENT_ARRIVE, request, request.prompt_tokens, 0)
    punish_waiting(state, request.weight, request.arrival_time_s)
    if state.num_running + state.num_waiting == 0:
        state.progress_iteration = state.iteration
    if _can_never_run(state, request.prompt_tokens):
        end(state, request, REJECTED, TOO_LARGE)
        return
    enqueue(state, key, request)
    if state.shed_hopeless:
        _set_alarm(state, row, hopeless_from_s(request), _BY_DEADLINE)
    elif state.track_misses:
        _set_alarm(state, row, request.arrival_time_s + request.ttft_slo_s, _BY_DEADLINE)
    if state.request_timeout_s < np.inf:
        _set_alarm(state, row, request.arrival_time_s + state.request_timeout_s, _BY_TIMEOUT)


@compiled_part
def _can_never_run(state: Any, prompt_tokens: int) -> bool:
    """Tell whether a prompt is too long for the model, the pool or, taken whole, a batch."""
    if prompt_tokens >= state.max_model_len or never_fits_a_batch(state, prompt_tokens):
        return True
    return blocks_for(prompt_tokens, state.block_size) > state.num_blocks


@compiled_part
def _set_alarm(state: Any, row: int, time_s: float, why: float) -> None:
    push(expiries_of(state), state.num_expiries, time_s, why, row, row)
    state.num_expiries += 1


@compiled_part
def expire(state: Any) -> None:
    """Handle every deadline that the clock has passed.

    With ``shed_hopeless``, a waiting request without output is rejected once an immediate lone
    prefill would end after its TTFT deadline.
    """
    while state.num_expiries > 0 and expiries_of(state)[0].key < state.clock_s:
        row = expiries_of(state)[0].row
        time_s = expiries_of(state)[0].key
        why = expiries_of(state)[0].second_key
        drop_top(expiries_of(state), state.num_expiries)
        state.num_expiries -= 1
        request = requests_of(state)[row]
        if request.status != RUNNING and not is_waiting(request):
            continue
        if why == _BY_TIMEOUT:
            _drop(state, row, TIMED_OUT, TIMEOUT)
        elif state.shed_hopeless and is_waiting(request) and is_out_of_reach(state, request):
            _drop(state, row, REJECTED, SHED)
        elif math.isnan(request.first_token_s):
            _pass_deadline(state, row, time_s)


@compiled_part
def next_alarm_s(state: Any) -> float:
    """Return when the next deadline is due that can still matter; infinity if there is none.

    A deadline for the first token of a request that has put one out, or has ended, never will.
    """
    while state.num_expiries > 0:
        alarm = expiries_of(state)[0]
        request = requests_of(state)[alarm.row]
        is_live = request.status == RUNNING or is_waiting(request)
        if is_live and (alarm.second_key == _BY_TIMEOUT or math.isnan(request.first_token_s)):
            return alarm.key
        drop_top(expiries_of(state), state.num_expiries)
        state.num_expiries -= 1
    return np.inf


@compiled_part
def _pass_deadline(state: Any, row: int, time_s: float) -> None:
    """Count a miss if the TTFT deadline passed, else come back when it does."""
    request = requests_of(state)[row]
    deadline_s = request.arrival_time_s + request.ttft_slo_s
    if not state.track_misses or request.missed == 1:
        return
    if time_s < deadline_s:
        _set_alarm(state, row, deadline_s, _BY_DEADLINE)
    else:
        miss(state, request, deadline_s)


@compiled_part
def running_position(state: Any, row: int) -> int:
    """Return the position of a running request."""
    position = 0
    while running_of(state)[position].row != row:
        position += 1
    return position


@compiled_part
def _drop(state: Any, row: int, status: int, reason: int) -> None:
    """End a live request before its time, wherever it is."""
    request = requests_of(state)[row]
    if request.status == RUNNING:
        position = running_position(state, row)
        step_out(state, position)
        settle(state, running_of(state)[position], status, reason)
        remove_running(state, position)
        return
    take_out(state, row)
    end(state, request, status, reason)
