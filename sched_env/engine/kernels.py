"""The entries from Python into the compiled core.

Each takes the memory of a world and the two addresses of a key function, and works on one server
after another. ``step_batch`` takes the arrays one by one: unpacking a named tuple at the border of
compiled code would cost a scalar step more than the step itself.
"""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from sched_env.compiled import compiled
from sched_env.engine import arrivals, decide, episode, execute, flight, schedule
from sched_env.engine.keycall import key_at
from sched_env.engine.memory import aim, aim_outputs, requests_of
from sched_env.engine.records import Arrays
from sched_env.engine.view import view


@compiled
def reset_batch(
    arrays: Arrays,
    key_addresses: tuple[int, int],
    chosen: NDArray[Any],
    offset_s: float,
    observations: NDArray[Any],
    masks: NDArray[Any],
) -> None:
    """Start the next episode of each chosen server and write its first observation and mask."""
    key = key_at(key_addresses[0], key_addresses[1])
    for index in range(arrays.state.size):
        if chosen[index]:
            state = arrays.state[index]
            aim(state, arrays, index)
            aim_outputs(state, observations, masks, index)
            episode.start_episode(state, key, offset_s)
            view(state)


@compiled
def step_batch(
    state: NDArray[Any],
    cost: NDArray[Any],
    classes: NDArray[Any],
    trace: NDArray[Any],
    segments: NDArray[Any],
    slots: NDArray[Any],
    heaps: NDArray[Any],
    events: NDArray[Any],
    scratch: NDArray[Any],
    blocks: NDArray[Any],
    tables: NDArray[Any],
    hash_ids: NDArray[Any],
    key_address: int,
    key_jit_address: int,
    actions: NDArray[Any],
    observations: NDArray[Any],
    masks: NDArray[Any],
    results: NDArray[Any],
) -> int:
    """Take one decision in each server; return how many episodes ended.

    ``masks`` holds the legal actions before and after. ``results`` is float64 (N, 6): reward,
    terminated, truncated, elapsed seconds, discount, illegal actions.
    """
    arrays = Arrays(
        state,
        cost,
        classes,
        trace,
        segments,
        slots,
        heaps,
        events,
        scratch,
        blocks,
        tables,
        hash_ids,
    )
    key_addresses = (key_address, key_jit_address)
    return step_servers(arrays, key_addresses, actions, observations, masks, results)


@compiled
def step_servers(
    arrays: Arrays,
    key_addresses: tuple[int, int],
    actions: NDArray[Any],
    observations: NDArray[Any],
    masks: NDArray[Any],
    results: NDArray[Any],
) -> int:
    """Do the work of ``step_batch``, for callers that are compiled themselves."""
    key = key_at(key_addresses[0], key_addresses[1])
    ended = 0
    for index in range(arrays.state.size):
        server = arrays.state[index]
        aim(server, arrays, index)
        aim_outputs(server, observations, masks, index)
        decide.step(server, key, actions[index])
        view(server)
        ended += _report(server, results[index])
    return ended


@compiled
def _report(state: Any, result: NDArray[Any]) -> int:
    elapsed_s = state.clock_s - state.step_start_s
    result[0] = state.reward
    result[1] = state.terminated
    result[2] = state.truncated
    result[3] = elapsed_s
    result[4] = math.exp(-elapsed_s / state.discount_time_s)
    result[5] = state.invalid_actions
    return 1 if state.terminated or state.truncated else 0


@compiled
def view_batch(arrays: Arrays, observations: NDArray[Any], masks: NDArray[Any]) -> None:
    """Write the observation and mask of each server as it stands."""
    for index in range(arrays.state.size):
        state = arrays.state[index]
        aim(state, arrays, index)
        aim_outputs(state, observations, masks, index)
        decide.legal_actions(state)
        view(state)


@compiled
def begin_decisions(
    arrays: Arrays,
    key_addresses: tuple[int, int],
    observations: NDArray[Any],
    masks: NDArray[Any],
) -> None:
    """Bring each server, whose arrivals are set, to its first decision."""
    key = key_at(key_addresses[0], key_addresses[1])
    for index in range(arrays.state.size):
        state = arrays.state[index]
        aim(state, arrays, index)
        aim_outputs(state, observations, masks, index)
        decide.settle_decisions(state, key)
        view(state)


@compiled
def run(arrays: Arrays, key_addresses: tuple[int, int], max_iterations: int) -> bool:
    """Serve under a key function and the scheduler's own rules; tell whether all has ended.

    Returns early, with the answer no, after ``max_iterations`` batches or when the event log
    wants more room.
    """
    key = key_at(key_addresses[0], key_addresses[1])
    state = arrays.state[0]
    aim(state, arrays, 0)
    for _ in range(max_iterations):
        if state.clock_s >= state.horizon_s:
            state.truncated = 1
            return True
        if not episode.may_record(state):
            return False
        arrivals.receive(state, key)
        arrivals.expire(state)
        if state.num_running == 0 and state.num_waiting == 0:
            if state.num_in_flight > 0:
                execute.end_oldest_batch(state)
                continue
            if episode.is_idle(state):
                state.terminated = 1
                return True
            state.clock_s = min(state.next_arrival_s, state.horizon_s)
            continue
        schedule.schedule(state, key)
        execute.execute(state, schedule.admission_is_closed(state), state.horizon_s)
    return False


@compiled
def reset_one(arrays: Arrays) -> None:
    """Empty server 0."""
    state = arrays.state[0]
    aim(state, arrays, 0)
    episode.reset(state)
    state.next_arrival_s = arrivals.arrival_time_s(state, 0)


@compiled
def clear_row(arrays: Arrays, row: int) -> None:
    """Make a row of server 0 a request to which nothing has happened."""
    state = arrays.state[0]
    aim(state, arrays, 0)
    arrivals.reset(requests_of(state)[row], row)


@compiled
def submit_one(arrays: Arrays, key_addresses: tuple[int, int], row: int) -> None:
    """Take in the request of a filled row of server 0."""
    state = arrays.state[0]
    aim(state, arrays, 0)
    arrivals.submit(state, key_at(key_addresses[0], key_addresses[1]), row)


@compiled
def schedule_one(arrays: Arrays, key_addresses: tuple[int, int]) -> None:
    """Form one batch in server 0; with asynchronous scheduling it is in flight then."""
    state = arrays.state[0]
    aim(state, arrays, 0)
    schedule.schedule(state, key_at(key_addresses[0], key_addresses[1]))
    if state.async_scheduling:
        flight.launch(state, 0.0)


@compiled
def deliver_one(arrays: Arrays, step_time_s: float) -> None:
    """Apply the outputs of the oldest batch of server 0, ``step_time_s`` later."""
    state = arrays.state[0]
    aim(state, arrays, 0)
    state.clock_s += step_time_s
    state.iteration += 1
    if state.async_scheduling:
        flight.make_room_for_batch(state)
        flight.land(state)
    else:
        execute.deliver(state, 1)
