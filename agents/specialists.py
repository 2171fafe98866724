"""What searches make of a policy and of a network before they teach.

One rule for the prefill level has to serve whatever a policy meets. A network that meets one trace
at one SLO tightness alone, and is searched on there, does better there; who learns from all of them
is to tell them apart by what it observes. The policy that learns is searched on, too, over all
that it will be taught.
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


class Searched(NamedTuple):
    """What the searches found.

    Attributes:
        policy: The policy that is to learn; its card says nothing of the search.
        specialists: Who serves best with lengths as recorded, by trace and SLO factor.
        num_requests: What was simulated for it.
    """

    policy: ExportedPolicy
    specialists: Mapping[tuple[str, float], ExportedPolicy]
    num_requests: int


def searched(
    policy: ExportedPolicy,
    specialist: ExportedPolicy,
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int,
    objective: ObjectiveConfig | None = None,
    progress: Callable[[float], None] | None = None,
) -> Searched:
    """Go on from a policy on all conditions, and from another on each trace at each SLO tightness.

    Args:
        policy: Who is to learn: a pointer network, or a linear score.
        specialist: Another, or the same.
        env: Traces, server and clients.
        tuning: How long to search, and on what: loads, SLO tightness, stretches, KV pools and sizes
            of pieces. Specialists meet lengths as recorded.
        seed: Draws candidates and pieces.
        objective: What they are best at; goodput by default.
        progress: Called after each generation with the share of all that is done, 0 to 1.

    Raises:
        ModuleNotFoundError: The extra ``tune`` is not installed.
        TraceError: A trace cannot be read or is too short.
    """
    num_generations = tuning.iterations * (1 + len(env.trace) * len(tuning.slo_factors))
    done = itertools.count(1)

    def show(_generation: int, _look: Look) -> None:
        if progress is not None:
            progress(next(done) / num_generations)

    whole = polish(policy, env, tuning, seed, show, objective)
    specialists: dict[tuple[str, float], ExportedPolicy] = {}
    num_requests = whole.budget.num_requests
    for trace in env.trace:
        one = env.replace(trace=(trace,))
        for slo_factor in tuning.slo_factors:
            alone = tuning.replace(slo_factors=(slo_factor,), stretches=(StretchConfig(),))
            result = polish(specialist, one, alone, seed, show, objective)
            specialists[trace, slo_factor] = result.policy
            num_requests += result.budget.num_requests
    return Searched(ExportedPolicy(policy.card, whole.policy.weights), specialists, num_requests)
