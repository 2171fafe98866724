"""Longest cached prefix first, with aging so that cold requests do not starve."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic

TOKENS_PER_PASS = 100
"""Cached tokens that one more pass of waiting is worth."""


def _never_ran(request: Any, now: float) -> tuple[float, float]:
    """Return the lane: without a cache, who began to wait first comes first.

    A preempted request began to wait later than it arrived, and has a lane of its own.
    """
    return (-1.0 - request.row if request.num_preemptions > 0 else 0.0), 0.0


@heuristic(
    "cache_aware",
    lane=_never_ran,
    reference="Zheng et al., SGLang: Efficient Execution of Structured Language Model Programs, "
    "2024 (cache-hit-first order)",
    parameters={"tokens_per_pass": TOKENS_PER_PASS},
)
def cache_aware(request: Any, now: float) -> tuple[float, float]:
    """Order by cached tokens plus a bonus for each time the queue was put in order meanwhile."""
    score = request.num_cached_tokens + TOKENS_PER_PASS * request.passes_waited
    return -score, request.arrival_time_s
