"""Weighted shortest job first, with the prefill of an iteration bounded for the sake of decodes."""

from __future__ import annotations

from sched_env.policy.names import register
from sched_env.policy.scores import linear_score

DENSITY = 5.0
"""Scale of the feature "density", which makes it log(weight / work)."""

LOST_BY_STEP = 1.0
"""With 1, a step of 50 ms with all prefill halves the wanted level: 1 - s / (s + 50 ms)."""

LOST_AT_RISK = 16.0
"""Level lost per part of ``max_num_seqs`` whose decode is behind its TPOT SLO."""

dynamic_budget = linear_score(
    "dynamic_budget",
    admit={"density": DENSITY},
    preempt={"density": -DENSITY},
    level={"full_step": -LOST_BY_STEP, "decodes_at_risk": -LOST_AT_RISK},
    training={
        "run": "Agrawal et al., Sarathi-Serve, OSDI 2024 (chunks of prefill bounded by the TPOT "
        "SLO); here the bound follows the step time and the decodes that are late",
        "lost_by_step": LOST_BY_STEP,
        "lost_at_risk": LOST_AT_RISK,
    },
)
register(dynamic_budget)
