"""Aging: priority grows with waiting, so that nothing starves."""

from __future__ import annotations

from typing import Any

from sched_env.engine.aging import aged_priority
from sched_env.policy.keys import heuristic

AGING_INTERVAL_S = 4.0
"""Waiting that is worth one level of priority."""


def _priority(request: Any, now: float) -> tuple[float, float]:
    """Return the lane: of one priority, who arrived first has aged at least as much."""
    return request.priority, 0.0


@heuristic(
    "aging",
    lane=_priority,
    reference="Silberschatz, Galvin, Gagne, Operating System Concepts, priority scheduling",
    parameters={"aging_interval_s": AGING_INTERVAL_S},
)
def aging(request: Any, now: float) -> tuple[float, float]:
    """Order by ``priority + floor(wait / interval)``, larger first, then by arrival."""
    wait_s = max(now - request.arrival_time_s, 0.0)
    return -aged_priority(request.priority, wait_s, AGING_INTERVAL_S), request.arrival_time_s
