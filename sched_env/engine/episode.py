"""Start an episode: which piece of the trace, at which load, drawn from the seed alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.engine.arrivals import arrival_time_s
from sched_env.engine.batch import open_batch
from sched_env.engine.cohort import empty_cohort
from sched_env.engine.decide import apply, open_iteration, settle_decisions
from sched_env.engine.lanes import empty_lanes
from sched_env.engine.layout import FULL_LEVEL, NUM_LEVELS
from sched_env.engine.legality import first_legal, legal_actions
from sched_env.engine.memory import itl_counts_of, mask_of, segments_of, trace_of
from sched_env.engine.pool import empty_pool
from sched_env.engine.waiting import empty_front
from sched_env.workload.counter_rng import mix, uniform

_EPISODE_STREAM = 11


@compiled_part
def reset(state: Any) -> None:
    """Empty the state: nothing has arrived, the clock is 0, all blocks are free."""
    state.clock_s = 0.0
    empty_pool(state)
    state.num_running = 0
    state.num_admitted = 0
    state.num_backlog = 0
    state.num_expiries = 0
    state.num_waiting = 0
    state.num_events = 0
    state.num_recurring_events = 0
    state.num_lost_events = 0
    state.next_row = 0
    state.iteration = 0
    state.num_executed_steps = 0
    state.last_prefill_step = -state.prefill_schedule_interval
    state.prefill_capacity_bound = 0
    state.progress_iteration = 0
    state.num_in_flight = 0
    state.num_stale = 0
    empty_cohort(state)
    open_batch(state)
    state.num_evicted_now = 0
    state.num_fitting = 0
    state.step_time_s = 0.0
    state.news = 0
    state.deciding = 0
    state.measuring = 0
    state.terminated = 0
    state.truncated = 0
    state.arrival_rate_rps = 0.0
    state.last_arrival_s = 0.0
    state.reward = 0.0
    state.step_start_s = 0.0
    state.waiting_since_s = 0.0
    state.waiting_weight = 0.0
    state.waiting_prefill_tokens = 0.0
    state.waiting_decode_tokens = 0.0
    state.classes_waiting = 0
    state.class_tokens[:] = 0.0
    state.decisions = 0
    state.invalid_actions = 0
    state.viewed_at = 0
    empty_front(state)
    empty_lanes(state)
    _reset_counts(state)
    itl_counts_of(state)[:] = 0


@compiled_part
def _reset_counts(state: Any) -> None:
    state.num_finished = 0
    state.num_rejected = 0
    state.num_timed_out = 0
    state.num_preemptions = 0
    state.num_computed_tokens = 0
    state.num_recomputed_tokens = 0
    state.num_cached_tokens = 0
    state.num_output_tokens = 0
    state.num_steps_beyond_table = 0
    state.busy_s = 0.0
    state.kv_block_seconds = 0.0
    state.weight_injected = 0.0
    state.weight_met = 0.0
    state.weight_missed = 0.0
    state.num_met = 0
    state.num_missed = 0


@compiled_part
def start_episode(state: Any, key: Any, offset_s: float) -> None:
    """Begin episode ``state.episode`` of ``state.env_seed`` and go on to its first decision.

    Args:
        state: The server.
        key: Order of the waiting requests.
        offset_s: Where in its piece of the trace the episode starts, in recorded seconds; NaN
            draws it.
    """
    state.seed = mix(state.env_seed, state.episode)
    reset(state)
    choice = int(uniform(state.seed, 0, _EPISODE_STREAM) * segments_of(state).size)
    segment = segments_of(state)[min(choice, segments_of(state).size - 1)]
    low, high = state.load_low, state.load_high
    state.load = low + (high - low) * uniform(state.seed, 1, _EPISODE_STREAM)
    state.interval_scale = segment.interval_scale
    if state.load > 0.0:
        state.interval_scale = segment.interval_scale / state.load
    window_s = state.horizon_s / state.interval_scale
    latest_s = max(segment.end_s - window_s, segment.start_s)
    start_s = segment.start_s + offset_s
    if math.isnan(offset_s):
        share = uniform(state.seed, 2, _EPISODE_STREAM)
        start_s = segment.start_s + (latest_s - segment.start_s) * share
    state.trace_start_s = start_s
    state.trace_row = _first_row(trace_of(state), segment, start_s)
    state.num_rows = min(segment.end_row - state.trace_row, state.row_capacity)
    state.next_arrival_s = arrival_time_s(state, 0)
    _warm_up(state, key)
    settle_decisions(state, key)
    state.reward = 0.0


@compiled_part
def _first_row(trace: Any, segment: Any, start_s: float) -> int:
    """Return the first row of a segment at or after a recorded time."""
    low, high = segment.first_row, segment.end_row
    while low < high:
        middle = (low + high) >> 1
        if trace[middle].arrival_time_s < start_s:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_part
def _warm_up(state: Any, key: Any) -> None:
    """Serve from the head of the queue for ``warmup_s``, so that the server starts warm."""
    while state.clock_s < state.warmup_s and not (state.terminated or state.truncated):
        open_iteration(state, key)
        while state.deciding:
            legal_actions(state)
            apply(state, key, head_action(state))
    _reset_counts(state)


@compiled_part
def head_action(state: Any) -> int:
    """Return what a scheduler without choice does: the head until it does not fit, tail victims."""
    mask = mask_of(state)
    if mask[NUM_LEVELS]:
        return NUM_LEVELS
    if mask[FULL_LEVEL]:
        return FULL_LEVEL
    return first_legal(state)


@compiled_part
def may_record(state: Any) -> bool:
    """Tell whether the events of one more iteration are sure to fit."""
    if state.event_capacity == 0:
        return True
    return state.num_recurring_events < state.event_capacity - state.event_reserve


@compiled_part
def is_idle(state: Any) -> bool:
    """Tell whether nothing waits or runs and nothing more will arrive."""
    live = state.num_running + state.num_waiting
    return live == 0 and state.next_arrival_s == np.inf
