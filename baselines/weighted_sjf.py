"""Weighted shortest job first: the most weight for the least predicted work."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic


@heuristic(
    "weighted_sjf",
    static=True,
    reference="Smith, Various optimizers for single-stage production, 1956 (the WSPT rule)",
)
def weighted_sjf(request: Any, now: float) -> tuple[float, float]:
    """Order by weight over predicted work left, larger first."""
    tokens_left = max(request.predicted_output_tokens - request.num_output_tokens, 1.0)
    work_s = request.lone_prefill_s + tokens_left * request.token_time_s
    return -request.weight / work_s, request.arrival_time_s
