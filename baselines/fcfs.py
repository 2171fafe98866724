"""First come, first served: vLLM's default order."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic


@heuristic("fcfs", static=True, reference="vLLM, v1/core/sched/request_queue.py, FCFSRequestQueue")
def fcfs(request: Any, now: float) -> tuple[float, float]:
    """Order by arrival; rows are numbered as requests arrive."""
    return float(request.row), 0.0
