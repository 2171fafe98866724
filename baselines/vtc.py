"""Fair share: the service class that has been served least for its weight comes first."""

from __future__ import annotations

from typing import Any

from sched_env.engine.fair_share import OUTPUT_WEIGHT
from sched_env.policy.keys import heuristic


def _service_class(request: Any, now: float) -> tuple[float, float]:
    """Return the lane: of one class, who arrived first comes first."""
    return float(request.service_class), 0.0


@heuristic(
    "vtc",
    lane=_service_class,
    reference="Sheng et al., Fairness in Serving Large Language Models, OSDI 2024 (virtual token "
    "counters, weighted)",
    parameters={"output_weight": OUTPUT_WEIGHT},
)
def vtc(request: Any, now: float) -> tuple[float, float]:
    """Order by the tokens served to the class over its weight, then by arrival."""
    return request.class_tokens, request.arrival_time_s
