"""The entries from Python into the compiled core.

Each takes the address of a world's MEMORY record, and works on one server after another. One number
is what crosses the border fastest: the arrays of a world one by one would cost a scalar step more
than the step itself.
"""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from sched_env.compiled import compiled, compiled_part, compiled_without_gil
from sched_env.engine import arrivals, decide, episode, execute, flight, legality, schedule
from sched_env.engine.cohort import fall_out
from sched_env.engine.keycall import key_at
from sched_env.engine.memory import (
    aim_outputs,
    copy_outlet,
    memory_at,
    outlet_at,
    outputs_in,
    outputs_of,
    requests_of,
    results_at,
    server_of,
)
from sched_env.engine.outlet import DISCOUNT, ELAPSED, INVALID, REWARD, TERMINATED, TRUNCATED
from sched_env.engine.view import view


@compiled_part
def _key_of(memory: Any) -> Any:
    """Return the key function of a world."""
    return key_at(memory.key_at, memory.key_jit_at)


@compiled
def reset_batch(
    address: int,
    chosen: NDArray[Any],
    offset_s: float,
    observations: NDArray[Any],
    masks: NDArray[Any],
) -> None:
    """Start the next episode of each chosen server and write its first observation and mask."""
    memory = memory_at(address)
    key, outputs = _key_of(memory), outputs_of(observations, masks)
    for index in range(memory.num_servers):
        if chosen[index]:
            state = server_of(memory, index)
            aim_outputs(state, outputs, index)
            episode.start_episode(state, key, offset_s)
            _show(state)


@compiled_without_gil
def step_servers(
    address: int, outlet_address: int, first: int, end: int, actions: NDArray[Any]
) -> int:
    """Take one decision in each server from ``first`` to ``end - 1``; return how many flags it set.

    All that ``step_batch`` fills lies in an outlet: ``outlet_address`` is that of an OUTLET record.
    """
    memory, outlet = memory_at(address), outlet_at(outlet_address)
    results = results_at(outlet.results_at, memory.num_servers)
    return _step_servers(memory, first, end, actions, outputs_in(outlet), results)


@compiled_without_gil
def step_batch(
    address: int,
    first: int,
    end: int,
    actions: NDArray[Any],
    observations: NDArray[Any],
    masks: NDArray[Any],
    results: NDArray[Any],
) -> int:
    """Take one decision in each server from ``first`` to ``end - 1``; return how many flags it set.

    ``masks`` holds the legal actions before and after. ``results`` is float64 (6, N): reward,
    elapsed seconds, discount, and the flags: terminated, truncated (and not terminated), illegal
    action.
    """
    memory = memory_at(address)
    told = results_at(results.ctypes.data, memory.num_servers)
    return _step_servers(memory, first, end, actions, outputs_of(observations, masks), told)


@compiled_part
def _step_servers(
    memory: Any,
    first: int,
    end: int,
    actions: Any,
    outputs: tuple[int, int, int, int],
    results: Any,
) -> int:
    key, num_flags = _key_of(memory), 0
    for index in range(first, end):
        state = server_of(memory, index)
        aim_outputs(state, outputs, index)
        num_flags += _step(state, key, actions[index], results, memory.num_servers, index)
    return num_flags


@compiled
def step_one(
    address: int, outlet_address: int, action: int, observation_at: int, mask_at: int
) -> None:
    """Take one decision in the only server of a world.

    Args:
        address: Of the world's MEMORY record.
        outlet_address: Of an OUTLET record, whose arrays are filled.
        action: The decision.
        observation_at: Where a copy of the observation goes.
        mask_at: Where a copy of the mask goes.
    """
    memory, outlet = memory_at(address), outlet_at(outlet_address)
    state = server_of(memory, 0)
    aim_outputs(state, outputs_in(outlet), 0)
    _step(state, _key_of(memory), action, results_at(outlet.results_at, 1), 1, 0)
    copy_outlet(outlet, observation_at, mask_at)


@compiled_part
def _step(state: Any, key: Any, action: int, results: Any, count: int, index: int) -> int:
    """Take one decision in server ``index`` of ``count``, and show and tell what came of it."""
    decide.step(state, key, action)
    _show(state)
    return _report(state, results, count, index)


@compiled_part
def _show(state: Any) -> None:
    """Write the observation, unless a batch is being measured: then nobody decides."""
    if not state.measuring:
        view(state)


@compiled_part
def _report(state: Any, results: Any, count: int, index: int) -> int:
    """Write the results of server ``index`` of ``count``; return how many flags are set."""
    truncated = state.truncated and not state.terminated
    elapsed_s = state.clock_s - state.step_start_s
    discount = math.exp(-elapsed_s / state.discount_time_s) if elapsed_s > 0.0 else 1.0
    results[REWARD * count + index] = state.reward
    results[ELAPSED * count + index] = elapsed_s
    results[DISCOUNT * count + index] = discount
    results[TERMINATED * count + index] = state.terminated
    results[TRUNCATED * count + index] = truncated
    results[INVALID * count + index] = state.invalid_actions
    return state.terminated + truncated + state.invalid_actions


@compiled
def end_measured_one(
    address: int,
    step_time_s: float,
    observations: NDArray[Any],
    masks: NDArray[Any],
    results: NDArray[Any],
) -> None:
    """End the batch of live server 0 after its measured time, and go on with the decision.

    ``results`` is as in ``step_batch``, (6, 1).
    """
    memory = memory_at(address)
    state = server_of(memory, 0)
    aim_outputs(state, outputs_of(observations, masks), 0)
    decide.end_measured_batch(state, _key_of(memory), step_time_s)
    _show(state)
    _report(state, results_at(results.ctypes.data, 1), 1, 0)


@compiled
def view_batch(address: int, observations: NDArray[Any], masks: NDArray[Any]) -> None:
    """Write the observation and mask of each server as it stands."""
    memory, outputs = memory_at(address), outputs_of(observations, masks)
    for index in range(memory.num_servers):
        state = server_of(memory, index)
        aim_outputs(state, outputs, index)
        legality.legal_actions(state)
        state.viewed_at = 0  # whatever lies there now
        view(state)


@compiled
def begin_decisions(address: int, observations: NDArray[Any], masks: NDArray[Any]) -> None:
    """Bring each server, whose arrivals are set, to its first decision."""
    memory = memory_at(address)
    key, outputs = _key_of(memory), outputs_of(observations, masks)
    for index in range(memory.num_servers):
        state = server_of(memory, index)
        aim_outputs(state, outputs, index)
        decide.settle_decisions(state, key)
        _show(state)


@compiled
def run(address: int, max_iterations: int) -> bool:
    """Serve under a key function and the scheduler's own rules; tell whether all has ended.

    Returns early, with the answer no, after ``max_iterations`` batches or when the event log
    wants more room.
    """
    memory = memory_at(address)
    key = _key_of(memory)
    state = server_of(memory, 0)
    for _ in range(max_iterations):
        if not episode.may_record(state):
            return False
        if not _await_work(state, key):
            return True
        schedule.schedule(state, key)
        execute.execute(state, schedule.admission_is_closed(state), state.horizon_s)
    return False


@compiled_part
def _await_work(state: Any, key: Any) -> bool:
    """Let time pass until a request waits or runs; tell whether there is one and time is left."""
    while state.clock_s < state.horizon_s:
        arrivals.receive(state, key)
        arrivals.expire(state)
        if state.num_running > 0 or state.num_waiting > 0:
            return True
        if state.num_in_flight > 0:
            execute.end_oldest_batch(state)
        elif episode.is_idle(state):
            state.terminated = 1
            return False
        else:
            state.clock_s = min(state.next_arrival_s, state.horizon_s)
    state.truncated = 1
    return False


@compiled
def form_batch(address: int) -> bool:
    """Go on to the next batch of server 0 as ``run`` does, but do not run it; tell if there is one.

    Its tokens may be none. ``deliver_one`` ends it.
    """
    memory = memory_at(address)
    key = _key_of(memory)
    state = server_of(memory, 0)
    if not _await_work(state, key):
        return False
    schedule.schedule(state, key)
    return True


@compiled
def settle_seats(address: int, index: int) -> None:
    """Let each seat of server ``index`` tell all of its request."""
    fall_out(server_of(memory_at(address), index))


@compiled
def reset_one(address: int) -> None:
    """Empty server 0."""
    state = server_of(memory_at(address), 0)
    episode.reset(state)
    state.next_arrival_s = arrivals.arrival_time_s(state, 0)


@compiled
def clear_row(address: int, row: int) -> None:
    """Make a row of server 0 a request to which nothing has happened."""
    state = server_of(memory_at(address), 0)
    arrivals.reset(requests_of(state)[row], row)


@compiled
def fill_unseen(address: int, index: int, num_requests: int) -> None:
    """Write those of the first rows of server ``index`` that have not arrived as if they had."""
    state = server_of(memory_at(address), index)
    for row in range(state.next_row, num_requests):
        arrivals.fill(state, row)


@compiled
def submit_one(address: int, row: int) -> None:
    """Take in the request of a filled row of server 0."""
    state = server_of(memory_at(address), 0)
    arrivals.submit(state, _key_of(memory_at(address)), row)


@compiled
def schedule_one(address: int) -> None:
    """Form one batch in server 0; with asynchronous scheduling it is in flight then."""
    state = server_of(memory_at(address), 0)
    schedule.schedule(state, _key_of(memory_at(address)))
    if state.async_scheduling:
        flight.launch(state, 0.0)


@compiled
def deliver_one(address: int, step_time_s: float) -> None:
    """Apply the outputs of the oldest batch of server 0, ``step_time_s`` later."""
    state = server_of(memory_at(address), 0)
    if state.async_scheduling:
        state.clock_s += step_time_s
        state.iteration += 1
        flight.make_room_for_batch(state)
        flight.land(state)
    else:
        execute.complete(state, step_time_s)
