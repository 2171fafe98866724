"""How requests end: finished, rejected or timed out, each counted once with a reason."""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.cohort import step_out
from sched_env.engine.events import record
from sched_env.engine.fair_share import charge_class
from sched_env.engine.memory import requests_of, running_of
from sched_env.engine.pool import give_back_blocks
from sched_env.engine.records import (
    EVENT_FINISH,
    EVENT_REJECT,
    EVENT_TIME_OUT,
    FINISHED,
    KV_CAPACITY,
    NOT_IN_FLIGHT,
    REJECTED,
)
from sched_env.engine.reward import punish_miss, reward_met


@compiled_part
def hopeless_from_s(request: Any) -> float:
    """Return the last time at which an immediate lone prefill would still meet the TTFT SLO."""
    return request.arrival_time_s + request.ttft_slo_s - request.lone_prefill_s


@compiled_part
def is_out_of_reach(state: Any, request: Any) -> bool:
    """Tell whether a request without output can no longer meet its TTFT SLO."""
    return math.isnan(request.first_token_s) and state.clock_s > hopeless_from_s(request)


@compiled_part
def miss(state: Any, request: Any, time_s: float) -> None:
    """Count a request whose SLO can no longer be met, once."""
    if request.missed == 0:
        request.missed = 1
        state.num_missed += 1
        state.weight_missed += request.weight
        punish_miss(state, request.weight, time_s)


@compiled_part
def meets_slo(request: Any) -> bool:
    """Tell whether a finished request met its TTFT and, with two tokens or more, its TPOT SLO.

    An answer that was cut short for want of blocks meets none.
    """
    if request.finish_reason == KV_CAPACITY:
        return False
    if request.first_token_s - request.arrival_time_s > request.ttft_slo_s:
        return False
    if request.num_output_tokens < 2:
        return True
    decode_s = request.finish_s - request.first_token_s
    return decode_s <= request.tpot_slo_s * (request.num_output_tokens - 1)


@compiled_part
def end(state: Any, request: Any, status: int, reason: int) -> None:
    """End ``request``, its row of the table, which holds no blocks any more."""
    request.status = status
    request.finish_reason = reason
    request.finish_s = state.clock_s
    if status == FINISHED:
        state.num_finished += 1
        kind = EVENT_FINISH
    elif status == REJECTED:
        state.num_rejected += 1
        kind = EVENT_REJECT
    else:
        state.num_timed_out += 1
        kind = EVENT_TIME_OUT
    if request.missed == 0 and status == FINISHED and meets_slo(request):
        state.num_met += 1
        state.weight_met += request.weight
        reward_met(state, request.weight, state.clock_s)
    else:
        miss(state, request, state.clock_s)
    if state.counts_classes:
        request.class_tokens = 0.0
    state.news = 1
    state.progress_iteration = state.iteration
    record(state, kind, request, request.num_output_tokens, 0)


@compiled_part
def give_up(state: Any, request: Any, reason: int) -> None:
    """End a request that cannot go on, a row of the table which holds no blocks any more.

    It has finished with the tokens that it has put out; without any it is rejected.
    """
    end(state, request, FINISHED if request.num_output_tokens > 0 else REJECTED, reason)


@compiled_part
def settle(state: Any, seat: Any, status: int, reason: int) -> None:
    """Give back the blocks of a running request and end it; its seat is closed by the caller.

    One of the cohort has stepped out.
    """
    end(state, _leave_seat(state, seat), status, reason)


@compiled_part
def _leave_seat(state: Any, seat: Any) -> Any:
    """Give back what a running request holds; return its row of the table."""
    give_back_blocks(state, seat)
    seat.num_scheduled_tokens = 0
    seat.num_output_placeholders = 0
    seat.in_flight = NOT_IN_FLIGHT
    request = stand_up(state, seat)
    charge_class(state, request, 1.0)
    return request


@compiled_part
def stand_up(state: Any, seat: Any) -> Any:
    """Write the progress of a running request into its row of the table, and return that."""
    request = requests_of(state)[seat.row]
    request.num_output_tokens = seat.num_output_tokens
    request.num_computed_tokens = seat.num_computed_tokens
    request.num_blocks = seat.num_blocks
    request.num_output_placeholders = seat.num_output_placeholders
    request.stop_at_tokens = seat.stop_at_tokens
    request.is_prefill_chunk = seat.is_prefill_chunk
    request.in_flight = seat.in_flight
    request.last_token_s = seat.last_token_s
    return request


@compiled_part
def end_running(state: Any, position: int, reason: int) -> None:
    """End the running request at ``position``, which cannot go on, before its last token."""
    step_out(state, position)
    give_up(state, _leave_seat(state, running_of(state)[position]), reason)
    remove_running(state, position)


@compiled_part
def remove_running(state: Any, position: int) -> None:
    """Close the gap of a request that leaves the running ones; order is kept."""
    state.num_running -= 1
    for i in range(position, state.num_running):
        running_of(state)[i] = running_of(state)[i + 1]


@compiled_part
def first_token(state: Any, request: Any) -> None:
    """Note the first token of a request, in its row and, while it runs, in its seat.

    One that comes too late was missed when its deadline passed, in the iteration that made it.
    """
    row = requests_of(state)[request.row]
    request.first_token_s = state.clock_s
    row.first_token_s = state.clock_s
    state.news = 1
    state.progress_iteration = state.iteration
    if state.track_misses and state.clock_s - row.arrival_time_s > row.ttft_slo_s:
        miss(state, row, row.arrival_time_s + row.ttft_slo_s)
