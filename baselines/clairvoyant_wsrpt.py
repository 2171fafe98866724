"""Weighted shortest remaining processing time with true lengths: a ceiling, not a scheduler."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import Heuristic


def _key(request: Any, now: float) -> tuple[float, float]:
    """Order by weight over the work that is truly left, larger first."""
    tokens = request.prompt_tokens + request.num_output_tokens - request.num_computed_tokens
    prefill_s = request.lone_prefill_s * (tokens / request.prompt_tokens)
    tokens_left = max(request.stop_at_tokens - request.num_output_tokens, 1)
    work_s = prefill_s + tokens_left * request.token_time_s
    return -request.weight / work_s, request.arrival_time_s


clairvoyant_wsrpt = Heuristic(
    "clairvoyant_wsrpt",
    _key,
    static=True,
    reference="Schrage, 1968, with the weights of Smith, 1956; reads the true output length",
)
"""Not registered: no server knows what it reads. Evaluations take it only where told to."""
