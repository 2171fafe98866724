"""Multi-level feedback queue: a request sinks as it uses up tokens, and rises when it starves."""

from __future__ import annotations

import math
from typing import Any

from sched_env.policy.keys import heuristic

FIRST_QUANTUM_TOKENS = 256.0
"""Tokens in the first queue; each further one gives twice as many."""

PROMOTE_AFTER_S = 5.0
"""Wait after which a request is put into the first queue."""


@heuristic(
    "mlfq",
    reference="Wu et al., Fast Distributed Inference Serving for LLMs (FastServe), 2023",
    parameters={"first_quantum_tokens": FIRST_QUANTUM_TOKENS, "promote_after_s": PROMOTE_AFTER_S},
)
def mlfq(request: Any, now: float) -> tuple[float, float]:
    """Order by queue, then by arrival.

    A new request joins the first queue whose quantum holds its prompt, as FastServe's skip-join
    does; it sinks with the tokens computed for it.
    """
    since_s = request.arrival_time_s
    if not math.isnan(request.last_token_s):
        since_s = request.last_token_s
    if now - since_s >= PROMOTE_AFTER_S:
        return 0.0, request.arrival_time_s
    attained = request.num_computed_tokens + request.num_recomputed_tokens
    used = max(float(attained), float(request.prompt_tokens))
    level = math.ceil(math.log2(max(used / FIRST_QUANTUM_TOKENS, 1.0)))
    return float(level), request.arrival_time_s
