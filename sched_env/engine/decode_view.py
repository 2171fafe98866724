"""The observation and the mask of the teaching machine."""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled
from sched_env.engine import decode_episode as episode
from sched_env.engine import decode_layout as seen
from sched_env.engine import decode_machine as machine
from sched_env.engine.decode_machine import NONE, is_done
from sched_env.engine.outlet import DISCOUNT, ELAPSED, INVALID, REWARD, TERMINATED, TRUNCATED

_NUM_SLOT_FEATURES = len(seen.DECODE_SLOT_FEATURES)


@compiled
def view(state: Any, requests: Any, slots: Any, observation: Any, mask: Any) -> None:
    """Choose what is shown; write the observation, float32 (size,), and mask, int8 (2 S,)."""
    observation[:] = 0.0
    mask[:] = 0
    if state.terminated or state.truncated:
        slots[:] = NONE
        mask[0] = 1
    else:
        episode.show(state, requests, slots)
    weight, shown = 0.0, 0
    while shown < slots.size and slots[shown] != NONE:
        weight += episode.weight_of(requests[slots[shown]])
        shown += 1
    for slot in range(shown):
        row = slots[slot]
        mask[slot] = episode.may_step(state, requests, row)
        mask[slots.size + slot] = episode.may_preempt(state, requests, slots, row)
        features = observation[slot * _NUM_SLOT_FEATURES : (slot + 1) * _NUM_SLOT_FEATURES]
        features[seen.CAN_STEP] = mask[slot]
        features[seen.CAN_PREEMPT] = mask[slots.size + slot]
        _write_slot(state, requests[row], features)
        features[seen.WEIGHT] = episode.weight_of(requests[row]) / weight
    _write_globals(state, requests, shown, observation[slots.size * _NUM_SLOT_FEATURES :])


@compiled
def _write_slot(state: Any, request: Any, features: Any) -> None:
    remaining = machine.remaining_steps(request)
    features[seen.PRESENT] = 1.0
    features[seen.ADMITTED] = request.admitted
    features[seen.IS_DECODE] = request.phase == machine.DECODE
    features[seen.CACHE_HIT] = request.cache_hit
    features[seen.PREEMPTIBLE] = request.preemptible
    features[seen.PRIORITY] = request.priority / (abs(request.priority) + 2.0)
    features[seen.REMAINING] = remaining / (remaining + 8.0)
    features[seen.PROMPT_LEN] = request.prompt_len / (request.prompt_len + 16.0)
    features[seen.GENERATED] = request.generated_len / (request.generated_len + 8.0)
    features[seen.REQUIRED_BLOCKS] = request.required_blocks / state.kv_blocks
    features[seen.WAIT] = request.wait_steps / (request.wait_steps + 8.0)
    features[seen.HAS_DEADLINE] = request.has_deadline
    features[seen.SLACK] = 1.0
    if request.has_deadline:
        slack = machine.deadline_slack(state, request)
        features[seen.SLACK] = slack / (abs(slack) + 4.0)
    features[seen.MISSED] = request.missed
    features[seen.PREEMPTIONS] = request.preemptions / (request.preemptions + 1.0)


@compiled
def _write_globals(state: Any, requests: Any, shown: int, features: Any) -> None:
    live = 0
    for row in range(state.num_arrived):
        live += not is_done(requests[row])
    beyond = live - shown
    features[seen.FREE_KV] = state.free_kv_blocks / state.kv_blocks
    features[seen.CLOCK] = state.clock / (state.clock + 32.0)
    features[seen.LIVE] = live / (live + 4.0)
    features[seen.BEYOND_SLOTS] = beyond / (beyond + 4.0)
    features[seen.HAS_PREEMPTED] = state.victim != NONE


@compiled
def reset_batch(
    states: Any,
    requests: Any,
    slots: Any,
    instance: Any,
    chosen: Any,
    observations: Any,
    masks: Any,
) -> None:
    """Start the next episode of each chosen machine and write what is seen of it."""
    for index in range(states.size):
        if chosen[index]:
            episode.start_episode(states[index], requests[index], instance)
            view(states[index], requests[index], slots[index], observations[index], masks[index])


@compiled
def step_batch(
    states: Any,
    requests: Any,
    slots: Any,
    actions: Any,
    observations: Any,
    masks: Any,
    results: Any,
) -> int:
    """Take one decision in each machine; return how many flags it set.

    ``masks`` holds the legal actions before and after. ``results`` is float64 (6, N): reward,
    elapsed steps, discount, and the flags: terminated, truncated (and not terminated), illegal
    action.
    """
    num_flags = 0
    for index in range(states.size):
        state = states[index]
        episode.act(state, requests[index], slots[index], masks[index], actions[index])
        view(state, requests[index], slots[index], observations[index], masks[index])
        truncated = state.truncated and not state.terminated
        elapsed = state.clock - state.step_start
        results[REWARD, index] = state.reward
        results[ELAPSED, index] = elapsed
        results[DISCOUNT, index] = state.discount**elapsed
        results[TERMINATED, index] = state.terminated
        results[TRUNCATED, index] = truncated
        results[INVALID, index] = state.invalid_actions
        num_flags += state.terminated + truncated + state.invalid_actions
    return num_flags


@compiled
def view_batch(states: Any, requests: Any, slots: Any, observations: Any, masks: Any) -> None:
    """Write the observation and mask of each machine as it stands."""
    for index in range(states.size):
        view(states[index], requests[index], slots[index], observations[index], masks[index])


@compiled
def policy_batch(states: Any, requests: Any, slots: Any, policy: int, actions: Any) -> None:
    """Write the action of a policy for each machine; 0 where the episode is over."""
    for index in range(states.size):
        action = episode.policy_action(states[index], requests[index], slots[index], policy)
        actions[index] = max(action, 0)
