"""Deadline: the least slack first."""

from __future__ import annotations

import math
from typing import Any

from sched_env.policy.keys import heuristic


@heuristic(
    "deadline",
    static=True,
    reference="Mok, Fundamental design problems of distributed systems, 1983 (least slack)",
)
def deadline(request: Any, now: float) -> tuple[float, float]:
    """Order by slack: deadline - now - predicted time until it can be met.

    The deadline is that of the first token, whose remaining service is a lone prefill; after it,
    that of the next token. ``now`` is the same for all and does not change the order.
    """
    if math.isnan(request.first_token_s):
        due_s = request.arrival_time_s + request.ttft_slo_s
    else:
        due_s = request.first_token_s + request.tpot_slo_s * request.num_output_tokens
    return due_s - request.lone_prefill_s, request.arrival_time_s
