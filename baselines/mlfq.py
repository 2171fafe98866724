"""Multi-level feedback queue: a request sinks as it uses up tokens, and rises when it starves."""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled
from sched_env.policy.keys import heuristic

FIRST_QUANTUM_TOKENS = 256.0
"""Tokens in the first queue; each further one gives twice as many."""

PROMOTE_AFTER_S = 5.0
"""Wait after which a request is put into the first queue."""


def _queue(request: Any, now: float) -> tuple[float, float]:
    """Return the lane: the queue, in which requests are promoted in the order of arrival.

    One that has put out tokens counts its wait from the last of them, and has a lane of its own.
    """
    if not math.isnan(request.last_token_s):
        return -1.0 - request.row, 0.0
    return _level(request), 0.0


@compiled
def _level(request: Any) -> float:
    """Return the first queue whose quantum holds what a request has used."""
    attained = request.num_computed_tokens + request.num_recomputed_tokens
    used = max(float(attained), float(request.prompt_tokens))
    return float(math.ceil(math.log2(max(used / FIRST_QUANTUM_TOKENS, 1.0))))


@heuristic(
    "mlfq",
    lane=_queue,
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
    return _level(request), request.arrival_time_s
