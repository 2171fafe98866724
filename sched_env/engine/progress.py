"""The guard against runs that cannot move.

Some rule sets let requests evict one another for ever (vLLM 0.33.0 itself does under ``priority``
with equal keys, a long-prefill threshold and no full-sequence admission). Whatever the rules, a run
moves on: what keeps it from doing so ends with the reason ``no_progress``.
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.cohort import as_it_stands
from sched_env.engine.ending import end_running, give_up
from sched_env.engine.memory import requests_of, running_of, waiter_at
from sched_env.engine.records import NO_PROGRESS
from sched_env.engine.sizes import num_tokens
from sched_env.engine.waiting import take_out

_PATIENCE = 64
"""Iterations without a token that need no explanation."""


@compiled_part
def break_livelock(state: Any) -> None:
    """End the request that was preempted most, if the running ones only undo each other's work.

    Without preemption each iteration computes a token for the first time, so there is an output
    token after at most as many iterations as all live requests have tokens. Where nobody runs, for
    each batch is undone before it is run, it is the first waiting request that ends.
    """
    waited = state.iteration - state.progress_iteration
    if waited <= _PATIENCE or state.num_running + state.num_front == 0:
        return
    tokens, worst = state.waiting_prefill_tokens, 0
    for i in range(state.num_running):
        tokens += num_tokens(as_it_stands(state, i))
        if _preemptions_of(state, i) > _preemptions_of(state, worst):
            worst = i
    if waited <= _PATIENCE + tokens:
        return
    if state.num_running > 0:
        end_running(state, worst, NO_PROGRESS)
    elif state.num_in_flight == 0:
        _drop_head(state)


@compiled_part
def _preemptions_of(state: Any, position: int) -> int:
    return requests_of(state)[running_of(state)[position].row].num_preemptions


@compiled_part
def drop_stuck_head(state: Any) -> None:
    """End the first waiting request if nothing runs or flies and yet it was not admitted."""
    is_flying = state.num_in_flight > 0 and state.oldest_tokens > 0
    if state.num_running > 0 or is_flying or state.num_preempted_now > 0:
        return
    if state.num_front > 0 and state.batch_tokens == 0:
        _drop_head(state)


@compiled_part
def _drop_head(state: Any) -> None:
    """End the first waiting request: it cannot move."""
    row = waiter_at(state, 0).row
    take_out(state, row)
    give_up(state, requests_of(state)[row], NO_PROGRESS)
