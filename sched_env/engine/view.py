"""Write the observation of a server; ``layout.py`` names and explains each number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.compiled import compiled_part
from sched_env.engine.arrivals import arrival_time_s
from sched_env.engine.decide import NUM_LEVELS, tpot_slack_s
from sched_env.engine.layout import NUM_GLOBAL_FEATURES, NUM_SLOT_FEATURES
from sched_env.engine.schedule import blocks_for
from sched_env.engine.waiting import cache_logarithms, num_tokens


@compiled_part
def squash(x: float) -> float:
    """Return x / (1 + |x|)."""
    return x / (1.0 + abs(x))


@compiled_part
def view(server: Any, mask: NDArray[Any], observation: NDArray[Any]) -> None:
    """Write the observation, float32 (size,), of a server whose ``mask`` is up to date."""
    state = server.state
    num_slots = state.num_waiting_slots + state.num_running_slots
    shown_waiting = min(state.num_front, state.num_waiting_slots)
    shown_running = min(state.num_running, state.num_running_slots)
    edge = num_slots * NUM_SLOT_FEATURES
    best = _best_density(server, shown_waiting)
    for k in range(shown_waiting):
        slot = observation[k * NUM_SLOT_FEATURES : (k + 1) * NUM_SLOT_FEATURES]
        _view_slot(state, server.front[k], slot, best)
        slot[1] = 0.0
        slot[2] = mask[NUM_LEVELS + k]
        slot[8] = k / state.num_waiting_slots
    first_running = state.num_waiting_slots
    observation[shown_waiting * NUM_SLOT_FEATURES : first_running * NUM_SLOT_FEATURES] = 0.0
    for j in range(shown_running):
        start = (first_running + j) * NUM_SLOT_FEATURES
        slot = observation[start : start + NUM_SLOT_FEATURES]
        request = server.running[state.num_running - 1 - j]
        cache_logarithms(request)
        _view_slot(state, request, slot, max(best, request.log_density))
        slot[1] = 1.0
        slot[2] = mask[NUM_LEVELS + first_running + j]
        slot[8] = j / state.num_running_slots
    observation[(first_running + shown_running) * NUM_SLOT_FEATURES : edge] = 0.0
    _view_globals(server, observation[edge : edge + NUM_GLOBAL_FEATURES], shown_waiting)
    if state.privileged:
        _view_future(server, observation[edge + NUM_GLOBAL_FEATURES :], shown_waiting)


@compiled_part
def _best_density(server: Any, shown: int) -> float:
    best = -np.inf
    for k in range(shown):
        best = max(best, server.front[k].log_density)
    return best


@compiled_part
def ttft_slack_s(state: Any, request: Any) -> float:
    """Return how long a request may still wait before a lone prefill would be too late."""
    deadline_s = request.arrival_time_s + request.ttft_slo_s
    return deadline_s - state.clock_s - request.lone_prefill_s


@compiled_part
def _view_slot(state: Any, request: Any, slot: NDArray[Any], best_density: float) -> None:
    """Write the features of one request; the caller adds those of its place."""
    has_token = request.num_output_tokens > 0
    slack_s = ttft_slack_s(state, request)
    deadline_s = request.arrival_time_s + request.ttft_slo_s
    blocks = float(blocks_for(num_tokens(request), state.block_size))
    slot[0] = 1.0
    slot[3] = request.log_prefill / 10.0
    slot[4] = request.log_decode / 8.0
    slot[5] = request.weight / (request.weight + 2.0)
    slot[6] = min(max(request.log_density / 5.0, -10.0), 10.0)
    slot[7] = max(request.log_density - best_density, -20.0)
    slot[9] = squash(slack_s / 0.3)
    slot[10] = squash(slack_s / 1.5)
    slot[11] = squash(slack_s / 6.0)
    slot[12] = squash(blocks / (state.free_blocks + 1.0))
    slot[13] = min(blocks / state.num_blocks, 2.0)
    slot[14] = squash(0.5 * (state.clock_s - request.arrival_time_s))
    slot[15] = not has_token and state.clock_s > deadline_s
    slot[16] = request.preemptible
    slot[17] = squash(request.num_computed_tokens / 1024.0)
    slot[18] = squash(request.num_output_tokens / 64.0)
    slot[19] = squash(2.0 * tpot_slack_s(state, request)) if has_token else 0.0
    slot[20] = squash(float(request.num_preemptions))
    slot[21] = request.tpot_slo_s / (request.tpot_slo_s + 0.1)


@compiled_part
def _view_globals(server: Any, out: NDArray[Any], shown_waiting: int) -> None:
    state = server.state
    urgent, late, longest_s = 0.0, 0.0, 0.0
    for k in range(shown_waiting):
        request = server.front[k]
        slack_s = ttft_slack_s(state, request)
        urgent += request.weight if slack_s < 0.5 else 0.0
        late += request.weight if slack_s < 0.0 else 0.0
        longest_s = max(longest_s, state.clock_s - request.arrival_time_s)
    seats = float(state.max_num_seqs)
    budget = float(state.max_num_batched_tokens)
    pool = float(state.num_blocks)
    out[0] = state.free_blocks / pool
    out[1] = max(state.ledger_blocks / pool, -2.0)
    out[2] = state.num_running / seats
    out[3] = squash(state.num_admitted / 4.0)
    out[4] = state.ledger_tokens / budget
    out[5] = state.num_decoding / seats
    out[6] = state.ledger_prefill_tokens / budget
    out[7] = squash(state.num_waiting / 16.0)
    out[8] = squash((state.num_waiting - shown_waiting) / 16.0)
    out[9] = squash(max(state.waiting_weight, 0.0) / 16.0)
    out[10] = squash(max(state.waiting_prefill_tokens, 0.0) / 8192.0)
    out[11] = squash(max(state.waiting_decode_tokens, 0.0) / 8192.0)
    out[12] = squash(urgent / 4.0)
    out[13] = squash(late / 4.0)
    out[14] = squash(state.num_fitting / 4.0)
    out[15] = state.decodes_at_risk / seats
    out[16] = min(state.decode_context_tokens / (pool * state.block_size), 2.0)
    out[17] = squash(20.0 * state.next_decode_s)
    out[18] = squash(20.0 * state.next_full_s)
    out[19] = squash(state.arrival_rate_rps / 5.0)
    out[20] = state.ledger_blocks < 0
    out[21] = state.news
    out[22] = squash(longest_s / 5.0)
    out[23] = squash(state.running_decode_tokens / 8192.0)


@compiled_part
def _view_future(server: Any, out: NDArray[Any], shown_waiting: int) -> None:
    """Write what no policy may know: the arrivals to come and the true lengths."""
    state = server.state
    out[0] = _time_to_arrival(server, 0, 1.0)
    out[1] = _time_to_arrival(server, 3, 2.0)
    out[2] = _time_to_arrival(server, 15, 4.0)
    out[3] = _time_to_arrival(server, 63, 16.0)
    out[4] = squash(_coming_tokens(server, 16) / 16384.0)
    out[5] = squash(_coming_tokens(server, 64) / 65536.0)
    out[6] = squash(state.true_decode_tokens / 8192.0)
    left = 0.0
    for k in range(shown_waiting):
        left += server.front[k].stop_at_tokens - server.front[k].num_output_tokens
    out[7] = squash(left / 8192.0)


@compiled_part
def _time_to_arrival(server: Any, ahead: int, scale_s: float) -> float:
    state = server.state
    time_s = arrival_time_s(state, server.trace, state.next_row + ahead)
    if math.isinf(time_s):
        return 1.0
    return squash(max(time_s - state.clock_s, 0.0) / scale_s)


@compiled_part
def _coming_tokens(server: Any, count: int) -> float:
    state = server.state
    last = min(state.next_row + count, state.num_rows) - 1
    if last < state.next_row:
        return 0.0
    first = server.trace[state.trace_row + state.next_row]
    final = server.trace[state.trace_row + last]
    tokens = final.cumulative_tokens - first.cumulative_tokens
    return tokens + final.prompt_tokens + final.output_tokens
