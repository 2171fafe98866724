"""The reward of an environment step: named terms, discounted from the start of the step.

A reward at time t counts exp(-(t - step start) / discount_time_s), and waiting is integrated in
closed form, so the return does not depend on how many iterations one step spans.
"""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part


@compiled_part
def discount_at(state: Any, time_s: float) -> float:
    """Return the discount from the start of the step to ``time_s``."""
    return math.exp(-(time_s - state.step_start_s) / state.discount_time_s)


@compiled_part
def reward_met(state: Any, weight: float, time_s: float) -> None:
    """Goodput at completion: ``reward_goodput`` x weight for a request that met its SLO."""
    if state.reward_goodput != 0.0:
        state.reward += state.reward_goodput * weight * discount_at(state, time_s)


@compiled_part
def punish_miss(state: Any, weight: float, time_s: float) -> None:
    """Missed SLO: ``reward_miss`` x weight, once, when the deadline passes or at rejection."""
    if state.reward_miss != 0.0:
        state.reward -= state.reward_miss * weight * discount_at(state, time_s)


@compiled_part
def punish_recompute(state: Any, tokens: int) -> None:
    """Recompute cost: ``reward_recompute`` for each thousand computed tokens thrown away."""
    if state.reward_recompute != 0.0:
        cost = state.reward_recompute * tokens * 1e-3
        state.reward -= cost * discount_at(state, state.clock_s)


@compiled_part
def settle_waiting(state: Any) -> None:
    """Waiting: ``reward_waiting`` x weight x second, up to the clock (Little's law)."""
    if state.reward_waiting != 0.0 and state.clock_s > state.waiting_since_s:
        punish_waiting(state, state.waiting_weight, state.waiting_since_s)
    state.waiting_since_s = state.clock_s


@compiled_part
def punish_waiting(state: Any, weight: float, since_s: float) -> None:
    """Integrate the waiting of ``weight`` from ``since_s`` to the clock, discounted."""
    if state.reward_waiting != 0.0:
        span = discount_at(state, since_s) - discount_at(state, state.clock_s)
        state.reward -= state.reward_waiting * weight * state.discount_time_s * span
