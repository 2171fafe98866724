"""Earliest deadline first: whose deadline comes next, whatever is left to do for it."""

from __future__ import annotations

import math
from typing import Any

from sched_env.policy.keys import heuristic


@heuristic(
    "edf",
    static=True,
    reference="Liu and Layland, Scheduling algorithms for multiprogramming in a hard-real-time "
    "environment, 1973",
)
def edf(request: Any, now: float) -> tuple[float, float]:
    """Order by deadline: that of the first token, and after it that of the next token."""
    if math.isnan(request.first_token_s):
        return request.arrival_time_s + request.ttft_slo_s, request.arrival_time_s
    due_s = request.first_token_s + request.tpot_slo_s * request.num_output_tokens
    return due_s, request.arrival_time_s
