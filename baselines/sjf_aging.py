"""Shortest job first with aging: no request is passed for ever."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic

FORGIVEN_PER_S = 0.02
"""Seconds of work forgiven for each second of waiting."""


@heuristic(
    "sjf_aging",
    static=True,
    reference="Kleinrock, A delay dependent queue discipline, 1964; asked for in vLLM #31405",
    parameters={"forgiven_per_s": FORGIVEN_PER_S},
)
def sjf_aging(request: Any, now: float) -> tuple[float, float]:
    """Order by predicted work left minus a share of the wait.

    ``work - share * (now - arrival)`` orders as ``work + share * arrival`` does. A request with
    ``w`` seconds of work more than another is therefore passed only by those that arrive at most
    ``w / share`` seconds after it.
    """
    tokens_left = max(request.predicted_output_tokens - request.num_output_tokens, 1.0)
    work_s = request.lone_prefill_s + tokens_left * request.token_time_s
    return work_s + FORGIVEN_PER_S * request.arrival_time_s, request.arrival_time_s
