"""Teachers: who serves best under each condition, by trial on the training split.

A condition is a trace, its lengths as recorded or stretched, an SLO tightness and a KV pool. Of
those who may teach there (`sched_env.agents.teaching_rules`), whoever does best on some pieces of
it does. Where lengths are as recorded the pieces are long, for what ruins a window may win a piece
that ends before the queue has grown, and the highest mean decides; where they are stretched the
policy itself teaches unless another surely does better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_env.agents.score_search.scenarios import Condition, ScenarioSource, outcome_of
from sched_env.agents.teaching_rules import Rule, home_teachers, stretched_teachers
from sched_env.config import EnvConfig
from sched_env.config.experiment import ObjectiveConfig
from sched_env.config.tuning import StretchConfig, TuningConfig
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.deciding_run import Decider, run_together
from sched_env.simulator.result import read_result

NUM_TRIALS = 12
"""Pieces of the training split on which the teachers of a stretched condition are compared."""

NUM_HOME_TRIALS = 20
"""Pieces on which those of a condition with lengths as recorded are, each `LONG` times as long."""

LONG = 3
"""How many times as long those pieces are: what ruins a window may win a piece."""

_CHOICE_DRAW = 2**30
_SURE = 1.5
"""Standard errors by which a gain has to exceed 0."""


class TaughtCondition(NamedTuple):
    """Where a teacher is looked for.

    Attributes:
        source: Its pieces of the training split.
        trials: Those on which teachers are compared.
        stretch: What the lengths of the trace are multiplied by.
    """

    source: ScenarioSource
    trials: ScenarioSource
    stretch: StretchConfig


@dataclass(frozen=True)
class Teacher:
    """Who is imitated under one condition.

    Attributes:
        env: The condition.
        stretch: What the lengths of its trace are multiplied by.
        name: Name of the rule.
        rule: What decides.
        gain: What it is worth over the first that was tried, on the same pieces: weighted goodput,
            unless the objective prices waits.
    """

    env: EnvConfig
    stretch: StretchConfig
    name: str
    rule: Rule
    gain: float


class Trials(NamedTuple):
    """How the teachers of some conditions were found.

    Attributes:
        teachers: One for each condition.
        num_requests: What was simulated for it.
    """

    teachers: list[Teacher]
    num_requests: int


def taught_conditions(env: EnvConfig, tuning: TuningConfig) -> list[TaughtCondition]:
    """Return every trace, at every stretch, SLO tightness and KV pool; those at home come first.

    Raises:
        TraceError: A trace cannot be read or is too short.
    """
    conditions = []
    for stretch in sorted(tuning.stretches, key=lambda one: one.is_stretch):
        for trace in env.trace:
            for slo_factor in tuning.slo_factors:
                for kv_factor in tuning.kv_factors:
                    one = tuning.replace(
                        slo_factors=(slo_factor,), kv_factors=(kv_factor,), stretches=(stretch,)
                    )
                    source = ScenarioSource(env.replace(trace=(trace,)), one, "train")
                    trials = source if stretch.is_stretch else source.longer(LONG)
                    conditions.append(TaughtCondition(source, trials, stretch))
    return conditions


def best_teachers(
    policy: ExportedPolicy,
    specialist: ExportedPolicy | None,
    conditions: Sequence[TaughtCondition],
    seed: int,
    objective: ObjectiveConfig | None = None,
) -> Trials:
    """Return who does best on pieces of each condition; those at home come first.

    At home that is whoever has the highest mean, on stretched traces the policy itself unless
    another gains some standard errors.

    Args:
        policy: Who is to learn.
        specialist: Another that may teach.
        conditions: Where.
        seed: Draws the pieces.
        objective: What they are to be best at; goodput by default.
    """
    objective = objective or ObjectiveConfig()
    at_home = [one for one in conditions if not one.stretch.is_stretch]
    elsewhere = [one for one in conditions if one.stretch.is_stretch]
    home = _tried(home_teachers(policy, specialist), at_home, seed, NUM_HOME_TRIALS, 0.0, objective)
    rest = _tried(
        stretched_teachers(policy, specialist), elsewhere, seed, NUM_TRIALS, _SURE, objective
    )
    return Trials([*home.teachers, *rest.teachers], home.num_requests + rest.num_requests)


def _tried(
    choices: Mapping[str, Rule],
    conditions: Sequence[TaughtCondition],
    seed: int,
    num_trials: int,
    num_errors: float,
    objective: ObjectiveConfig,
) -> Trials:
    """Return whose gain over the first choice is highest, less so many standard errors."""
    pieces = [one.trials.draw(num_trials, seed, _CHOICE_DRAW) for one in conditions]
    together = [piece for few in pieces for piece in few]
    worths: dict[str, NDArray[np.float64]] = {}
    for name, rule in choices.items():
        outcomes = [outcome_of(requests) for requests in serve_together(together, rule.policy)]
        worths[name] = np.array([objective.worth(*outcome) for outcome in outcomes])
    first = worths[next(iter(choices))]
    gains = {name: (one - first).reshape(-1, num_trials) for name, one in worths.items()}
    teachers = []
    for index, condition in enumerate(conditions):
        means = {name: float(np.mean(one[index])) for name, one in gains.items()}
        errors = {name: float(np.std(one[index])) / num_trials**0.5 for name, one in gains.items()}
        best = max(choices, key=lambda name: means[name] - num_errors * errors[name])
        env = pieces[index][0].env
        teachers.append(Teacher(env, condition.stretch, best, choices[best], means[best]))
    return Trials(teachers, len(choices) * sum(len(piece.table) for piece in together))


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
            f"{one.env.scheduler.num_blocks},{one.name},{one.gain:.6f}"
        )
    return "\n".join(lines) + "\n"
