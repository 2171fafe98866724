"""Shortest job first, by the predicted length of the output."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic


@heuristic(
    "sjf",
    static=True,
    reference="Fu et al., Efficient LLM Scheduling by Learning to Rank, NeurIPS 2024",
)
def sjf(request: Any, now: float) -> tuple[float, float]:
    """Order by predicted work left: a lone prefill and the output tokens still to come."""
    tokens_left = max(request.predicted_output_tokens - request.num_output_tokens, 1.0)
    return request.lone_prefill_s + tokens_left * request.token_time_s, request.arrival_time_s
