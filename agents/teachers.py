"""Teachers: who serves best under each condition, by trial on the training split.

A condition is a trace, its lengths as recorded or stretched, an SLO tightness and a KV pool.
Whoever does best on some pieces of it teaches there: the policy as it is, or at the full prefill
level, or another that is given as specialist, or weighted shortest job first at the full level.
Two of them are tried as patient ones too, which admit nobody but the request with least slack, and
keep what is free for it until it fits: where small requests keep coming, a large one would find no
room. All of them preempt the request that has computed least, for that throws least away.
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
from sched_env.policy.card import ObservationSchema
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

GREEDY = "weighted_sjf"
"""Name of the rule that admits whatever fits, shortest weighted job first."""

PATIENT = "patient"
"""What stands before the name of who waits for the request with least slack to fit."""

_CHOICE_DRAW = 2**30
_SURE = 1.5
"""Standard errors by which a gain has to exceed 0."""
_ALMOST_1 = 1.0 - 1e-6


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


@dataclass(frozen=True)
class LeastSlack:
    """Prefers the waiting request that can wait least.

    That is how long until its first token would be too late, or, once tokens are out, the next;
    beyond 8 s all first tokens are alike, as in the observation, and the first slot wins.

    Attributes:
        seen: What it is shown.
    """

    seen: ObservationSchema

    def logits(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.float32]:
        """Return logits (N, num_actions): minus the slack in seconds; 0 for other actions."""
        long, middle, short, pace, outputs = waiting_slots(
            self.seen,
            observations,
            *("long_slack", "middle_slack", "short_slack", "tpot_slack", "outputs"),
        )
        first_s = np.where(np.abs(middle) < 1.0, 2.0 * middle, 8.0 * long)
        first_s = np.where(np.abs(short) < 1.0, 0.5 * short, first_s)
        pace = np.clip(pace, -_ALMOST_1, _ALMOST_1)
        next_s = 0.5 * pace / (1.0 - np.abs(pace))
        logits = np.zeros(masks.shape, np.float32)
        first = self.seen.num_levels
        slack_s = np.where(outputs > 0.0, next_s, first_s)
        logits[:, first : first + self.seen.num_waiting_slots] = -slack_s
        return logits


@dataclass(frozen=True)
class HeadOfLine:
    """Decides as another does, but admits nobody but the first of an order, once it is legal.

    Attributes:
        base: Who decides.
        order: Whose turn it is to be admitted.
        seen: What both are shown.
    """

    base: Decider
    order: Scores
    seen: ObservationSchema

    def act(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int64]:
        """Choose one action for each row."""
        first = self.seen.num_levels
        last = first + self.seen.num_waiting_slots
        present = waiting_slots(self.seen, observations, "present")[0] > 0.0
        order = self.order.logits(observations, masks)[:, first:last]
        head = np.where(present, order, -np.inf).argmax(axis=1)
        left = masks.copy()
        left[:, first:last] = 0
        rows = np.arange(len(masks))
        left[rows, first + head] = masks[rows, first + head]
        nothing = ~left.any(axis=1)
        left[nothing] = masks[nothing]
        return self.base.act(observations, left)


def waiting_slots(
    seen: ObservationSchema, observations: NDArray[Any], *names: str
) -> list[NDArray[Any]]:
    """Return the named features of the waiting slots, each (N, K)."""
    features = [feature.name for feature in seen.slot_features]
    slots = observations[:, : seen.num_waiting_slots * len(features)]
    slots = slots.reshape(len(observations), seen.num_waiting_slots, len(features))
    return [slots[:, :, features.index(name)] for name in names]


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
        rule: Name of what decides, as in `teachers_of`.
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

    greedy = linear_score(
        GREEDY, admit={"density": 5.0}, preempt={}, layout=seen, screen=policy.card.screen
    )
    full = seen.prefill_levels[-1]
    made: dict[str, Decider] = {
        OWN_RULE: variant(policy),
        f"level {full:g}": variant(policy, level=FixedLevel(seen.prefill_levels, full)),
        GREEDY: variant(greedy),
    }
    for name in (OWN_RULE, GREEDY):
        made[f"{PATIENT} {name}"] = HeadOfLine(made[name], LeastSlack(seen), seen)
    if specialist is not None:
        made[SPECIALIST] = variant(specialist)
    return made


def best_teachers(
    choices: Mapping[str, Decider], conditions: Sequence[TaughtCondition], seed: int
) -> list[Teacher]:
    """Return who does best on pieces of each condition; the first where nobody surely does better.

    Sure is a mean gain of some standard errors.
    """
    pieces = [one.source.draw(NUM_TRIALS, seed, _CHOICE_DRAW) for one in conditions]
    together = [piece for few in pieces for piece in few]
    goodputs = {
        name: np.array([goodput_weighted(one) for one in serve_together(together, decider)])
        for name, decider in choices.items()
    }
    gains = {
        name: (found - goodputs[next(iter(choices))]).reshape(len(conditions), NUM_TRIALS)
        for name, found in goodputs.items()
    }
    found = []
    for index, condition in enumerate(conditions):
        sure = {
            name: float(np.mean(one[index])) - _SURE * float(np.std(one[index])) / NUM_TRIALS**0.5
            for name, one in gains.items()
        }
        best = max(choices, key=lambda name: sure[name])
        gain = float(np.mean(gains[best][index]))
        env = pieces[index][0].env
        found.append(Teacher(env, condition.stretch, best, choices[best], gain))
    return found


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
