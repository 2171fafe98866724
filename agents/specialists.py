"""Specialists: what a search makes of a policy that meets one trace at one SLO tightness alone.

One prefill level rule has to serve whatever a policy meets. Let it meet less, and the same search
finds what does better there; the network that learns from all of them is to tell them apart by what
it observes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sched_env.agents.score_search.search import polish
from sched_env.config import EnvConfig
from sched_env.config.tuning import StretchConfig, TuningConfig
from sched_env.policy.runtime import ExportedPolicy


class Specialists(NamedTuple):
    """What the searches found.

    Attributes:
        policies: Who serves best, by trace and SLO factor.
        num_requests: What was simulated for it.
    """

    policies: Mapping[tuple[str, float], ExportedPolicy]
    num_requests: int


def searched_specialists(
    policy: ExportedPolicy, env: EnvConfig, tuning: TuningConfig, seed: int
) -> Specialists:
    """Go on from a policy on each trace at each SLO tightness, lengths as recorded.

    Args:
        policy: A pointer network, or a linear score.
        env: Traces, server and clients.
        tuning: How long to search, and on what else: loads, KV pools and sizes of pieces.
        seed: Draws candidates and pieces, the same for each.

    Raises:
        ModuleNotFoundError: The extra ``tune`` is not installed.
        TraceError: A trace cannot be read or is too short.
    """
    found: dict[tuple[str, float], ExportedPolicy] = {}
    num_requests = 0
    for trace in env.trace:
        for slo_factor in tuning.slo_factors:
            alone = tuning.replace(slo_factors=(slo_factor,), stretches=(StretchConfig(),))
            result = polish(policy, env.replace(trace=(trace,)), alone, seed)
            found[trace, slo_factor] = result.policy
            num_requests += result.budget.num_requests
    return Specialists(found, num_requests)
