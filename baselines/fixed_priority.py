"""Fixed priority: the more important class first, whatever it has waited."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic


@heuristic(
    "fixed_priority",
    static=True,
    reference="vLLM, v1/core/sched/request_queue.py, PriorityRequestQueue (there smaller first)",
)
def fixed_priority(request: Any, now: float) -> tuple[float, float]:
    """Order by priority, larger first, then by arrival."""
    return -request.priority, request.arrival_time_s
