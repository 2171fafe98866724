"""Aging: what waiting is worth, in the teaching machine and in the heuristic of that name."""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled


@compiled
def aged_priority(priority: Any, waited: Any, interval: Any) -> Any:
    """Return a priority, raised by one for each whole interval of waiting.

    Steps or seconds alike; whole numbers stay whole.
    """
    return priority + waited // interval
