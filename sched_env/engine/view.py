"""Write the observation of a server; ``layout.py`` names and explains each number."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from sched_env.compiled import compiled_part
from sched_env.engine.arrivals import arrival_time_s
from sched_env.engine.decide import NUM_LEVELS, tpot_slack_s
from sched_env.engine.features import DENSITY, rise, write_resting
from sched_env.engine.layout import NUM_GLOBAL_FEATURES, NUM_MOVING, NUM_SLOT_FEATURES
from sched_env.engine.records import NUM_RESTING
from sched_env.engine.sizes import decode_tokens_left

_URGENT_S = 0.5


@compiled_part
def view(server: Any, mask: NDArray[Any], observation: NDArray[Any]) -> None:
    """Write the observation, float32 (size,), of a server whose ``mask`` is up to date."""
    state = server.state
    num_slots = state.num_waiting_slots + state.num_running_slots
    edge = num_slots * NUM_SLOT_FEATURES
    best = _best_density(server)
    urgent, late, longest_s = _view_waiting(server, mask, observation, best)
    _view_running(server, mask, observation, best)
    globals_ = observation[edge : edge + NUM_GLOBAL_FEATURES]
    _view_budgets(state, globals_)
    _view_queue(state, globals_, urgent, late, longest_s)
    if state.privileged:
        _view_future(server, observation[edge + NUM_GLOBAL_FEATURES :])


@compiled_part
def _best_density(server: Any) -> float:
    state = server.state
    best = -10.0
    for k in range(min(state.num_front, state.num_waiting_slots)):
        best = max(best, server.front[k].resting[DENSITY])
    return best


@compiled_part
def _view_waiting(
    server: Any, mask: NDArray[Any], out: NDArray[Any], best: float
) -> tuple[float, float, float]:
    """Write the waiting slots; return the urgent weight, the late weight and the longest wait."""
    state = server.state
    shown = min(state.num_front, state.num_waiting_slots)
    urgent, late, longest_s = 0.0, 0.0, 0.0
    for k in range(shown):
        request = server.front[k]
        start = k * NUM_SLOT_FEATURES
        slack_s = _view_moving(state, request, out, start)
        out[start + 1] = 0.0
        out[start + 2] = mask[NUM_LEVELS + k]
        out[start + 3] = k / state.num_waiting_slots
        out[start + 4] = max(5.0 * (request.resting[DENSITY] - best), -20.0)
        for i in range(NUM_RESTING):
            out[start + NUM_MOVING + i] = request.resting[i]
        urgent += request.weight if slack_s < _URGENT_S else 0.0
        late += request.weight if slack_s < 0.0 else 0.0
        longest_s = max(longest_s, state.clock_s - request.arrival_time_s)
    end = state.num_waiting_slots * NUM_SLOT_FEATURES
    out[shown * NUM_SLOT_FEATURES : end] = 0.0
    return urgent, late, longest_s


@compiled_part
def _view_running(server: Any, mask: NDArray[Any], out: NDArray[Any], best: float) -> None:
    """Write the running slots, from the end of the batch order."""
    state = server.state
    shown = min(state.num_running, state.num_running_slots)
    for j in range(shown):
        request = server.running[state.num_running - 1 - j]
        slot = state.num_waiting_slots + j
        start = slot * NUM_SLOT_FEATURES
        _view_moving(state, request, out, start)
        write_resting(state, request, out, start + NUM_MOVING)
        out[start + 1] = 1.0
        out[start + 2] = mask[NUM_LEVELS + slot]
        out[start + 3] = j / state.num_running_slots
        out[start + 4] = min(max(5.0 * (out[start + NUM_MOVING + DENSITY] - best), -20.0), 0.0)
    first = (state.num_waiting_slots + shown) * NUM_SLOT_FEATURES
    end = (state.num_waiting_slots + state.num_running_slots) * NUM_SLOT_FEATURES
    out[first:end] = 0.0


@compiled_part
def _view_moving(state: Any, request: Any, out: NDArray[Any], start: int) -> float:
    """Write the features that change with time; return the slack of the first token.

    The slack is how long the request may still wait before a lone prefill would be too late.
    """
    wait_s = state.clock_s - request.arrival_time_s
    slack_s = request.ttft_slo_s - wait_s - request.lone_prefill_s
    blocks = float(request.whole_blocks)
    out[start] = 1.0
    out[start + 5] = rise(slack_s, 0.3)
    out[start + 6] = rise(slack_s, 1.5)
    out[start + 7] = rise(slack_s, 6.0)
    out[start + 8] = blocks / (blocks + state.free_blocks + 1.0)
    out[start + 9] = rise(wait_s, 2.0)
    if request.num_output_tokens > 0:
        out[start + 10] = 0.0
        out[start + 11] = rise(tpot_slack_s(state, request), 0.5)
    else:
        out[start + 10] = wait_s > request.ttft_slo_s
        out[start + 11] = 0.0
    return slack_s


@compiled_part
def _view_budgets(state: Any, out: NDArray[Any]) -> None:
    seats = 1.0 / state.max_num_seqs
    budget = 1.0 / state.max_num_batched_tokens
    pool = 1.0 / state.num_blocks
    out[0] = state.free_blocks * pool
    out[1] = max(state.ledger_blocks * pool, -2.0)
    out[2] = state.num_running * seats
    out[3] = rise(state.num_admitted, 4.0)
    out[4] = state.ledger_tokens * budget
    out[5] = state.num_decoding * seats
    out[6] = state.ledger_prefill_tokens * budget
    out[15] = state.decodes_at_risk * seats
    out[16] = min(state.decode_context_tokens * pool / state.block_size, 2.0)
    out[17] = rise(state.next_decode_s, 0.05)
    out[18] = rise(state.next_full_s, 0.05)
    out[20] = state.ledger_blocks < 0
    out[21] = state.news
    out[23] = rise(state.running_decode_tokens, 8192.0)


@compiled_part
def _view_queue(
    state: Any, out: NDArray[Any], urgent: float, late: float, longest_s: float
) -> None:
    beyond = max(state.num_waiting - state.num_waiting_slots, 0)
    out[7] = rise(state.num_waiting, 16.0)
    out[8] = rise(beyond, 16.0)
    out[9] = rise(max(state.waiting_weight, 0.0), 16.0)
    out[10] = rise(max(state.waiting_prefill_tokens, 0.0), 8192.0)
    out[11] = rise(max(state.waiting_decode_tokens, 0.0), 8192.0)
    out[12] = rise(urgent, 4.0)
    out[13] = rise(late, 4.0)
    out[14] = rise(state.num_fitting, 4.0)
    out[19] = rise(state.arrival_rate_rps, 5.0)
    out[22] = rise(longest_s, 5.0)


@compiled_part
def _view_future(server: Any, out: NDArray[Any]) -> None:
    """Write what no policy may know: the arrivals to come and the true lengths."""
    state = server.state
    out[0] = _time_to_arrival(server, 0, 1.0)
    out[1] = _time_to_arrival(server, 3, 2.0)
    out[2] = _time_to_arrival(server, 15, 4.0)
    out[3] = _time_to_arrival(server, 63, 16.0)
    out[4] = rise(_coming_tokens(server, 16), 16384.0)
    out[5] = rise(_coming_tokens(server, 64), 65536.0)
    out[6] = rise(state.true_decode_tokens, 8192.0)
    left = 0.0
    for k in range(min(state.num_front, state.num_waiting_slots)):
        left += server.front[k].stop_at_tokens - server.front[k].num_output_tokens
    out[7] = rise(left, 8192.0)


@compiled_part
def _time_to_arrival(server: Any, ahead: int, half_s: float) -> float:
    state = server.state
    time_s = arrival_time_s(state, server.trace, state.next_row + ahead)
    if math.isinf(time_s):
        return 1.0
    return rise(max(time_s - state.clock_s, 0.0), half_s)


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
