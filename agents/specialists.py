"""Specialists: what a search makes of a policy that meets one trace at one SLO tightness alone.

One rule for the prefill level has to serve whatever a policy meets. Let it meet less, and the same
search finds what does better there; the network that learns from all of them is to tell them apart
by what it observes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sched_env.agents.score_search.search import Look, polish
from sched_env.config import EnvConfig
from sched_env.config.experiment import ObjectiveConfig
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
    policy: ExportedPolicy,
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int,
    objective: ObjectiveConfig | None = None,
    progress: Callable[[float], None] | None = None,
) -> Specialists:
    """Go on from a policy on each trace at each SLO tightness, lengths as recorded.

    Args:
        policy: A pointer network, or a linear score.
        env: Traces, server and clients.
        tuning: How long to search, and on what else: loads, KV pools and sizes of pieces.
        seed: Draws candidates and pieces, the same for each.
        objective: What they are best at; goodput by default.
        progress: Called after each generation with the share of all that is done, 0 to 1.

    Raises:
        ModuleNotFoundError: The extra ``tune`` is not installed.
        TraceError: A trace cannot be read or is too short.
    """
    num_generations = tuning.iterations * len(env.trace) * len(tuning.slo_factors)
    done = itertools.count(1)

    def show(_generation: int, _look: Look) -> None:
        if progress is not None:
            progress(next(done) / num_generations)

    found: dict[tuple[str, float], ExportedPolicy] = {}
    num_requests = 0
    for trace in env.trace:
        for slo_factor in tuning.slo_factors:
            alone = tuning.replace(slo_factors=(slo_factor,), stretches=(StretchConfig(),))
            one = env.replace(trace=(trace,))
            result = polish(policy, one, alone, seed, show, objective)
            found[trace, slo_factor] = result.policy
            num_requests += result.budget.num_requests
    return Specialists(found, num_requests)
