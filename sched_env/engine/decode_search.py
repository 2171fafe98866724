"""The best that can be done in an episode of the teaching machine, by exhaustive search.

A state is what each request has got (0 to 1 + max_new_tokens steps) and who is admitted. The
machine is never idle while a request is there, so the clock follows from the number of steps taken,
and so does which deadlines can still be met. Every step raises what somebody has got: from the last
state backwards, the value of each state is the best reward plus value over all legal decisions,
taken by the functions that the environment itself calls. All requests are shown.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled
from sched_env.engine import decode_episode as episode
from sched_env.engine import decode_machine as machine
from sched_env.engine.decode_machine import NONE, is_done


@compiled
def num_states(requests: Any) -> float:
    """Return how many states there are, as a float, which cannot overflow."""
    count = 1.0
    for row in range(requests.size):
        count *= 2.0 * (requests[row].max_new_tokens + 2)
    return count


@compiled
def progress_of(request: Any) -> int:
    """Return the steps that a request has got."""
    return request.generated_len + (1 if request.phase == machine.DECODE else 0)


@compiled
def code_of(requests: Any) -> int:
    """Return the number of the state that requests are in."""
    progress, admitted = 0, 0
    for row in range(requests.size - 1, -1, -1):
        request = requests[row]
        progress = progress * (request.max_new_tokens + 2) + progress_of(request)
        admitted = 2 * admitted + request.admitted
    return progress * (1 << requests.size) + admitted


@compiled
def clocks(requests: Any) -> Any:
    """Return the clock after each number of steps, int64 (steps + 1,), idle time included."""
    total = 0
    for row in range(requests.size):
        total += 1 + requests[row].max_new_tokens
    times = np.zeros(total + 1, np.int64)
    arrived, work, now = 0, 0, 0
    for steps in range(total + 1):
        if steps > 0:
            now += 1
        while arrived < requests.size and (requests[arrived].arrival_step <= now or work == steps):
            now = max(now, requests[arrived].arrival_step)
            work += 1 + requests[arrived].max_new_tokens
            arrived += 1
        times[steps] = now
    return times


@compiled
def load(state: Any, requests: Any, times: Any, code: int) -> bool:
    """Put a machine into the state of a number; tell whether there is such a state."""
    admitted = code % (1 << requests.size)
    progress = code // (1 << requests.size)
    steps, free = 0, state.kv_blocks
    for row in range(requests.size):
        request = requests[row]
        lone = 1 + request.max_new_tokens
        got = progress % (lone + 1)
        progress //= lone + 1
        steps += got
        request.admitted = (admitted >> row) & 1
        request.phase = machine.PREFILL if got == 0 else machine.DECODE
        request.generated_len = max(got - 1, 0)
        if request.admitted:
            free -= request.required_blocks
            if got == 0 or got == lone:
                return False
    state.clock = times[steps]
    state.free_kv_blocks = free
    state.victim = NONE
    state.terminated = 0
    state.num_arrived = 0
    state.num_done = 0
    for row in range(requests.size):
        request = requests[row]
        state.num_arrived += request.arrival_step <= state.clock
        state.num_done += is_done(request)
        request.missed = machine.is_late(state, request)
        if request.arrival_step > state.clock and progress_of(request) > 0:
            return False
        if request.arrival_step > state.clock:
            request.missed = 0
    return free >= 0


@compiled
def legal(state: Any, requests: Any, slots: Any, mask: Any) -> None:
    """Show every live request, and mark what may be done."""
    episode.show(state, requests, slots)
    mask[:] = 0
    for slot in range(slots.size):
        if slots[slot] != NONE:
            mask[slot] = episode.may_step(state, requests, slots[slot])
            mask[slots.size + slot] = episode.may_preempt(state, requests, slots, slots[slot])


@compiled
def best_choice(states: Any, requests: Any, values: Any) -> tuple[float, int, int, int]:
    """Return the value of a state, the rows to preempt (or `NONE`) and to serve, and what follows.

    Args:
        states: EPISODE (3,), the machine in it at 0; the others are scratch.
        requests: DECODE_REQUEST (3, num_requests), likewise.
        values: Of all states, float64 (num_states,).
    """
    count = requests.shape[1]
    slots, mask = np.empty(count, np.int64), np.empty(2 * count, np.int8)
    after_slots, after_mask = np.empty(count, np.int64), np.empty(2 * count, np.int8)
    best, best_victim, best_row, best_code = -np.inf, NONE, NONE, 0
    legal(states[0], requests[0], slots, mask)
    for victim in range(-1, count):
        _copy(states, requests, 0, 1)
        paid = 0.0
        if victim >= 0:
            if not mask[count + victim]:
                continue
            episode.act(states[1], requests[1], slots, mask, count + victim)
            paid = states[1].reward
        legal(states[1], requests[1], after_slots, after_mask)
        for slot in range(count):
            if not after_mask[slot]:
                continue
            _copy(states, requests, 1, 2)
            episode.act(states[2], requests[2], after_slots, after_mask, slot)
            ahead = states[0].discount ** (states[2].clock - states[0].clock)
            code = code_of(requests[2])
            value = paid + states[2].reward + ahead * values[code]
            if value > best:
                best, best_row, best_code = value, after_slots[slot], code
                best_victim = NONE if victim < 0 else slots[victim]
    return best, best_victim, best_row, best_code


@compiled
def _copy(states: Any, requests: Any, source: int, target: int) -> None:
    states[target] = states[source]
    for row in range(requests.shape[1]):
        requests[target, row] = requests[source, row]


@compiled
def solve(states: Any, requests: Any) -> Any:
    """Return the value of each state, float64 (num_states,); see `best_choice`."""
    values = np.zeros(int(num_states(requests[0])))
    times = clocks(requests[0])
    for code in range(values.size - 1, -1, -1):
        if load(states[0], requests[0], times, code) and states[0].num_done < requests.shape[1]:
            values[code] = best_choice(states, requests, values)[0]
    return values
