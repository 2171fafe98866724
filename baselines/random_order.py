"""Random order: what no thought at all achieves."""

from __future__ import annotations

from typing import Any

from sched_env.policy.keys import heuristic
from sched_env.workload.counter_rng import uniform

SEED = 0
"""Another seed gives another order."""

_STREAM = 21


@heuristic(
    "random",
    static=True,
    reference="Conway, Maxwell and Miller, Theory of Scheduling, 1967 (service in random order)",
    parameters={"seed": SEED},
)
def random_order(request: Any, now: float) -> tuple[float, float]:
    """Order by a number that the seed draws for the request's row, once for all times."""
    return uniform(SEED, request.row, _STREAM), 0.0
