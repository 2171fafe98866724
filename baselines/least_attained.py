"""Least attained service first: who has had the fewest tokens computed."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic


@heuristic(
    "least_attained",
    static=True,
    reference="Kleinrock, Queueing Systems II, 1976 (foreground-background); Gu et al., Tiresias, "
    "NSDI 2019",
)
def least_attained(request: Any, now: float) -> tuple[float, float]:
    """Order by tokens computed so far, those that a preemption threw away included."""
    attained = request.num_computed_tokens + request.num_recomputed_tokens
    return float(attained), request.arrival_time_s
