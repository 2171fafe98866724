"""Teachers: who serves best under each condition, by trial on the training split.

A condition is a trace, its lengths as recorded or stretched, an SLO tightness and a KV pool.
Whoever does best on some pieces of it teaches there: the policy as it is, or at one fixed prefill
level, or another that is given as specialist, or a greedy rule that admits whatever fits at the
full level. All of them preempt the request that has computed least, for that throws least away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_env.agents.score_search.scenarios import Condition, ScenarioSource
from sched_env.config import EnvConfig
from sched_env.config.tuning import StretchConfig, TuningConfig
from sched_env.metrics.slo import goodput_weighted
from sched_env.policy.parts import Part, PartsPolicy, Scores
from sched_env.policy.runtime import ExportedPolicy
from sched_env.policy.scores import linear_score
from sched_env.simulator.deciding_run import Decider, run_together
from sched_env.simulator.result import read_result

NUM_TRIALS = 12
"""Pieces of the training split on which the teachers of one condition are compared."""

OWN_RULE = "own"
"""Name of the policy itself among the teachers."""

SPECIALIST = "specialist"
"""Name of another policy among the teachers."""

_CHOICE_DRAW = 2**30
_SURE = 1.5
"""Standard errors by which a gain has to exceed 0."""
_GREEDY_ORDERS: Mapping[str, Mapping[str, float]] = {
    "weighted_sjf": {"density": 5.0},
    "least_slack": {"short_slack": -1.0, "middle_slack": -2.0, "long_slack": -8.0},
}


@dataclass(frozen=True)
class FixedLevel:
    """Prefers the legal prefill level that is nearest to one.

    Attributes:
        levels: Part of the token budget that prefill may take, by level.
        wanted: The level to keep to.
    """

    levels: tuple[float, ...]
    wanted: float

    def logits(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.float32]:
        """Return logits (N, num_actions): minus the distance of a level, 0 for other actions."""
        logits = np.zeros(masks.shape, np.float32)
        logits[:, : len(self.levels)] = -np.abs(np.array(self.levels) - self.wanted)
        return logits


class TaughtCondition(NamedTuple):
    """Where a teacher is looked for.

    Attributes:
        source: Its pieces of the training split.
        stretch: What the lengths of the trace are multiplied by.
    """

    source: ScenarioSource
    stretch: StretchConfig


@dataclass(frozen=True)
class Teacher:
    """Who is imitated under one condition.

    Attributes:
        env: The condition.
        stretch: What the lengths of its trace are multiplied by.
        rule: Name of what decides: ``own``, ``level 0.5``, ``specialist`` or a greedy order.
        policy: What decides.
        gain: Its weighted goodput over that of the policy itself, on the training pieces.
    """

    env: EnvConfig
    stretch: StretchConfig
    rule: str
    policy: Decider
    gain: float


def taught_conditions(env: EnvConfig, tuning: TuningConfig) -> list[TaughtCondition]:
    """Return every trace, at every stretch, SLO tightness and KV pool.

    Raises:
        TraceError: A trace cannot be read or is too short.
    """
    return [
        TaughtCondition(
            ScenarioSource(
                env.replace(trace=(trace,)),
                tuning.replace(
                    slo_factors=(slo_factor,), kv_factors=(kv_factor,), stretches=(stretch,)
                ),
                "train",
            ),
            stretch,
        )
        for stretch in tuning.stretches
        for trace in env.trace
        for slo_factor in tuning.slo_factors
        for kv_factor in tuning.kv_factors
    ]


def least_computed(policy: ExportedPolicy) -> ExportedPolicy:
    """Return what prefers the victim with the fewest computed tokens, shown what ``policy`` is."""
    preempt = {"computed": -1.0}
    return linear_score("victims", admit={}, preempt=preempt, layout=policy.card.observation)


def teachers_of(
    policy: ExportedPolicy, specialist: ExportedPolicy | None = None
) -> dict[str, Decider]:
    """Return who may teach a policy, by name, the policy itself first.

    Args:
        policy: Who is to learn.
        specialist: Another that may teach, shown what the policy is shown.
    """
    seen, victims = policy.card.observation, least_computed(policy)

    def variant(base: ExportedPolicy, level: Scores | None = None) -> Decider:
        parts: dict[Part, Scores] = {"victims": victims}
        if level is not None:
            parts["level"] = level
        return PartsPolicy(base.name, base, parts)

    levels = seen.prefill_levels
    made = {OWN_RULE: variant(policy)}
    for level in levels[1:]:
        made[f"level {level:g}"] = variant(policy, level=FixedLevel(levels, level))
    if specialist is not None:
        made[SPECIALIST] = variant(specialist)
    for name, admit in _GREEDY_ORDERS.items():
        order = linear_score(name, admit=admit, preempt={}, layout=seen, screen=policy.card.screen)
        made[name] = variant(order)
    return made


def best_teacher(choices: Mapping[str, Decider], condition: TaughtCondition, seed: int) -> Teacher:
    """Return who does best on pieces of one condition; the first where nobody surely does better.

    Sure is a mean gain of some standard errors.
    """
    pieces = condition.source.draw(NUM_TRIALS, seed, _CHOICE_DRAW)
    goodputs = {
        name: np.array([goodput_weighted(one) for one in serve_together(pieces, decider)])
        for name, decider in choices.items()
    }
    gains = {name: found - goodputs[next(iter(choices))] for name, found in goodputs.items()}
    sure = {
        name: float(np.mean(one)) - _SURE * float(np.std(one)) / NUM_TRIALS**0.5
        for name, one in gains.items()
    }
    best = max(choices, key=lambda name: sure[name])
    gain = float(np.mean(gains[best]))
    return Teacher(pieces[0].env, condition.stretch, best, choices[best], gain)


def serve_together(pieces: Sequence[Condition], decider: Decider) -> list[NDArray[Any]]:
    """Return the requests of each piece after a decider has served them."""
    worlds = [piece.world() for piece in pieces]
    run_together(worlds, decider)
    return [
        read_result(world, 0, len(piece.table), 0, 0).requests
        for world, piece in zip(worlds, pieces, strict=True)
    ]


def teachers_csv(teachers: Sequence[Teacher]) -> str:
    """Return one row a condition: who taught, and what that gained on the training pieces."""
    lines = ["trace,prompt_factor,output_factor,slo_factor,num_blocks,teacher,gain"]
    for one in teachers:
        trace, stretch = Path(one.env.trace[0]).name, one.stretch
        lines.append(
            f"{trace},{stretch.prompt:g},{stretch.output:g},{one.env.service.slo_factor:g},"
            f"{one.env.scheduler.num_blocks},{one.rule},{one.gain:.6f}"
        )
    return "\n".join(lines) + "\n"
