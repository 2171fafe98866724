"""Shortest remaining processing time first, by the predicted length of the output."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic


@heuristic(
    "srpt",
    static=True,
    reference="Schrage, A proof of the optimality of the shortest remaining processing time "
    "discipline, 1968",
)
def srpt(request: Any, now: float) -> tuple[float, float]:
    """Order by what is left to compute: prefill not done yet, and output tokens to come.

    Unlike in ``sjf`` a running request's finished prefill no longer counts, and a preempted one
    has the prefill of its prompt and outputs before it again.
    """
    tokens = request.prompt_tokens + request.num_output_tokens - request.num_computed_tokens
    prefill_s = request.lone_prefill_s * (tokens / request.prompt_tokens)
    tokens_left = max(request.predicted_output_tokens - request.num_output_tokens, 1.0)
    return prefill_s + tokens_left * request.token_time_s, request.arrival_time_s
