"""Episodes of the teaching machine: what arrives, what may be done, what is paid.

One decision gives a shown request the step, or preempts one. Giving a step to a request that is not
admitted admits it, so its blocks must be free. A preemption takes no time; it must let a shown
request fit that did not, and one of those gets the step that follows. Which of two requests is more
urgent is the agent's to say: `find_victim` of the machine, which asks for a lower priority, is for
its own policies.
"""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled
from sched_env.engine import decode_machine as machine
from sched_env.engine.decode_machine import NONE, is_done
from sched_env.engine.records import RUNNING, WAITING
from sched_env.workload.counter_rng import mix, uniform

(
    _COUNT_STREAM,
    _GAP_STREAM,
    _PROMPT_STREAM,
    _OUTPUT_STREAM,
    _PRIORITY_STREAM,
    _BLOCKS_STREAM,
    _HIT_STREAM,
    _PREEMPTIBLE_STREAM,
    _DEADLINE_STREAM,
    _FACTOR_STREAM,
) = range(101, 111)


@compiled
def _whole(seed: int, row: int, stream: int, low: int, high: int) -> int:
    """Draw a whole number, every one from ``low`` to ``high`` alike."""
    return low + int(uniform(seed, row, stream) * (high - low + 1))


@compiled
def weight_of(request: Any) -> float:
    """Return what a request counts for: 1 + its priority, and 1 where that is negative."""
    return 1.0 + max(request.priority, 0)


@compiled
def draw_requests(state: Any, requests: Any) -> None:
    """Draw the requests of an episode, in order of arrival; the first one arrives at 0."""
    seed = mix(state.env_seed, state.episode)
    low, high = state.num_requests_low, state.num_requests_high
    state.num_requests = _whole(seed, 0, _COUNT_STREAM, low, high)
    arrival = 0
    for row in range(state.num_requests):
        if row > 0:
            low, high = state.arrival_gap_steps_low, state.arrival_gap_steps_high
            arrival += _whole(seed, row, _GAP_STREAM, low, high)
        _draw_request(state, requests[row], seed, row, arrival)


@compiled
def _draw_request(state: Any, request: Any, seed: int, row: int, arrival: int) -> None:
    request.request_id = row
    request.arrival_step = arrival
    low, high = state.prompt_len_low, state.prompt_len_high
    request.prompt_len = _whole(seed, row, _PROMPT_STREAM, low, high)
    low, high = state.max_new_tokens_low, state.max_new_tokens_high
    request.max_new_tokens = _whole(seed, row, _OUTPUT_STREAM, low, high)
    low, high = state.priority_low, state.priority_high
    request.priority = _whole(seed, row, _PRIORITY_STREAM, low, high)
    low, high = state.required_blocks_low, state.required_blocks_high
    request.required_blocks = _whole(seed, row, _BLOCKS_STREAM, low, high)
    request.cache_hit = uniform(seed, row, _HIT_STREAM) < state.cache_hit_share
    request.preemptible = uniform(seed, row, _PREEMPTIBLE_STREAM) < state.preemptible_share
    request.has_deadline = uniform(seed, row, _DEADLINE_STREAM) < state.deadline_share
    low_factor, high_factor = state.deadline_factor_low, state.deadline_factor_high
    factor = low_factor + uniform(seed, row, _FACTOR_STREAM) * (high_factor - low_factor)
    lone_steps = 1 + request.max_new_tokens
    request.deadline_step = arrival + math.ceil(factor * lone_steps)


@compiled
def clear(request: Any) -> None:
    """Make a request one to which nothing has happened."""
    request.generated_len = 0
    request.wait_steps = 0
    request.preemptions = 0
    request.phase = machine.PREFILL
    request.status = WAITING
    request.admitted = 0
    request.missed = 0


@compiled
def start_episode(state: Any, requests: Any, instance: Any) -> None:
    """Begin the next episode: a drawn one, or the given instance."""
    if instance.size:
        state.num_requests = instance.size
        for row in range(instance.size):
            requests[row] = instance[row]
    else:
        draw_requests(state, requests)
    state.clock = 0
    state.free_kv_blocks = state.kv_blocks
    state.total_weight = 0.0
    for row in range(state.num_requests):
        clear(requests[row])
        state.total_weight += weight_of(requests[row])
    state.num_arrived = 0
    state.num_done = 0
    state.victim = NONE
    state.terminated = 0
    state.truncated = 0
    state.num_met = 0
    state.num_missed = 0
    state.weight_met = 0.0
    state.num_preemptions = 0
    state.decisions = 0
    state.reward = 0.0
    pass_idle_time(state, requests)


@compiled
def pass_idle_time(state: Any, requests: Any) -> None:
    """Let due requests arrive; where none is live, go on to the next arrival, or end."""
    _receive(state, requests)
    if state.num_done == state.num_requests:
        state.terminated = 1
    elif state.num_done == state.num_arrived:
        state.clock = requests[state.num_arrived].arrival_step
        _receive(state, requests)


@compiled
def _receive(state: Any, requests: Any) -> None:
    while state.num_arrived < state.num_requests:
        if requests[state.num_arrived].arrival_step > state.clock:
            break
        state.num_arrived += 1
    _note_misses(state, requests)


@compiled
def _note_misses(state: Any, requests: Any) -> None:
    """Charge each deadline that can no longer be met, once."""
    for row in range(state.num_arrived):
        request = requests[row]
        if not request.missed and not is_done(request) and machine.is_late(state, request):
            request.missed = 1
            state.num_missed += 1
            state.reward -= state.reward_miss * weight_of(request) / state.total_weight


@compiled
def show(state: Any, requests: Any, slots: Any) -> None:
    """Choose the requests that are shown: admitted ones first, then by arrival; in row order."""
    admitted = 0
    for row in range(state.num_arrived):
        admitted += requests[row].admitted
    room = max(slots.size - admitted, 0)
    shown = 0
    for row in range(state.num_arrived):
        request = requests[row]
        if is_done(request) or shown == slots.size:
            continue
        if not request.admitted:
            if room == 0:
                continue
            room -= 1
        slots[shown] = row
        shown += 1
    slots[shown:] = NONE


@compiled
def may_step(state: Any, requests: Any, row: int) -> bool:
    """Tell whether a live request may get the step."""
    request = requests[row]
    fits = request.admitted or request.required_blocks <= state.free_kv_blocks
    if state.victim == NONE:
        return fits
    return fits and _gains(state, request, row)


@compiled
def _gains(state: Any, request: Any, row: int) -> bool:
    """Tell whether a request that fits now did not before the last preemption."""
    if row == state.victim or request.admitted:
        return False
    return request.required_blocks > state.free_before


@compiled
def may_preempt(state: Any, requests: Any, slots: Any, row: int) -> bool:
    """Tell whether a live request may be preempted: a shown one that lacks blocks then fits."""
    request = requests[row]
    if state.victim != NONE or not request.admitted or not request.preemptible:
        return False
    for slot in range(slots.size):
        if slots[slot] == NONE:
            return False
        other = requests[slots[slot]]
        lacking = other.required_blocks - state.free_kv_blocks
        if not other.admitted and 0 < lacking <= request.required_blocks:
            return True
    return False


@compiled
def act(state: Any, requests: Any, slots: Any, mask: Any, action: int) -> None:
    """Take a decision; an illegal one is counted and replaced by the lowest legal one."""
    state.reward = 0.0
    state.step_start = state.clock
    state.invalid_actions = 0
    if state.terminated or state.truncated:
        return
    if action < 0 or action >= mask.size or not mask[action]:
        state.invalid_actions = 1
        action = 0
        while not mask[action]:
            action += 1
    state.decisions += 1
    row = slots[action % slots.size]
    if action < slots.size:
        _step(state, requests, row)
    else:
        _preempt(state, requests, row)


@compiled
def _preempt(state: Any, requests: Any, row: int) -> None:
    state.victim = row
    state.free_before = state.free_kv_blocks
    machine.preempt(state, requests[row])
    state.num_preemptions += 1
    state.reward -= state.reward_preemption


@compiled
def _step(state: Any, requests: Any, row: int) -> None:
    live_weight = 0.0
    for other in range(state.num_arrived):
        if not is_done(requests[other]):
            live_weight += weight_of(requests[other])
    state.reward -= state.reward_latency * live_weight / state.total_weight
    request = requests[row]
    if not request.admitted:
        machine.admit(state, request)
    request.status = RUNNING
    state.victim = NONE
    done = machine.advance(state, requests[: state.num_arrived], row) == machine.FINISH
    if done:
        state.num_done += 1
        if not request.missed:
            state.num_met += 1
            state.weight_met += weight_of(request)
            state.reward += state.reward_goodput * weight_of(request) / state.total_weight
    pass_idle_time(state, requests)


@compiled
def policy_action(state: Any, requests: Any, slots: Any, policy: int) -> int:
    """Return what a policy of the machine does, as an action.

    It is the same request, and the same victim, as `machine.serve` would take, among those shown.
    """
    state.policy = policy
    arrived = requests[: state.num_arrived]
    order = machine.service_order(state, arrived)
    for place in range(order.size):
        row = order[place]
        slot = _slot_of(slots, row)
        if slot == NONE:
            continue
        if may_step(state, requests, row) and _outranks_victim(state, requests, row):
            return slot
        if state.victim != NONE or requests[row].admitted:
            continue
        if requests[row].required_blocks > state.free_kv_blocks:
            victim = machine.find_victim(state, arrived, row)
            if victim != NONE and _slot_of(slots, victim) != NONE:
                return slots.size + _slot_of(slots, victim)
    return NONE


@compiled
def _outranks_victim(state: Any, requests: Any, row: int) -> bool:
    if state.victim == NONE:
        return True
    urgency = machine.effective_priority(state, requests[row])
    return urgency > machine.effective_priority(state, requests[state.victim])


@compiled
def _slot_of(slots: Any, row: int) -> int:
    for slot in range(slots.size):
        if slots[slot] == row:
            return slot
    return NONE
