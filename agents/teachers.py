"""Teachers: who serves best under each condition, by trial on the training split.

A condition is a trace, its lengths as recorded or stretched, an SLO tightness and a KV pool.
Whoever does best on some pieces of it teaches there.

Where lengths are as recorded, *at home*, the specialist teaches, which is the network that was
polished there, or what a search has made of it on that trace and SLO tightness alone, each with the
prefill levels that it wants or at the full one, or a *patient* policy, which admits nobody but the
request with least slack, and keeps what is free for it until it fits: where small requests keep
coming, a large one would find no room. They are compared on long pieces, for what ruins a window
may win a piece that ends before the queue has grown.

Where lengths are stretched, the policy itself teaches unless another surely does better: itself at
the full level, the specialist, or one of three that preempt *by turns* whoever is furthest ahead of
its TPOT SLO, for where long outputs share little memory, that serves more of them. All others
preempt the request that has computed least, for that throws least away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
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
"""Pieces of the training split on which the teachers of a stretched condition are compared."""

NUM_HOME_TRIALS = 20
"""Pieces on which those of a condition with lengths as recorded are, each `LONG` times as long."""

OWN_RULE = "own"
"""Name of the policy itself among the teachers."""

SPECIALIST = "specialist"
"""Name of another policy among the teachers."""

SEARCHED = "searched"
"""Name of what a search has made of one of them for one trace and SLO tightness."""

GREEDY = "weighted_sjf"
"""Name of the rule that admits whatever fits, shortest weighted job first, at the full level."""

PATIENT = "patient"
"""What stands before the name of who waits for the request with least slack to fit."""

FULL = "full"
"""What stands behind the name of who takes the full prefill level, whatever it wants."""

TURNS = "turns"
"""What stands behind the name of who preempts the request furthest ahead of its TPOT SLO."""

LONG = 3
"""How many times as long those pieces are: what ruins a window may win a piece."""

NUM_CANDIDATES = 24
"""Requests, of those that come first in the queue's own order, one of whom a patient teacher waits
for: who waits for any of all waits for those that cost most."""

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

    Only the `NUM_CANDIDATES` requests that are shown first come into question.

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
        present[:, NUM_CANDIDATES:] = False
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
        trials: Those on which teachers are compared.
        stretch: What the lengths of the trace are multiplied by.
        trace: The trace.
        slo_factor: The SLO tightness, a multiple of the environment's.
    """

    source: ScenarioSource
    trials: ScenarioSource
    stretch: StretchConfig
    trace: str
    slo_factor: float


class Rule(NamedTuple):
    """Who may teach.

    Attributes:
        policy: What decides.
        victims: Whom it preempts, wherever somebody may be.
    """

    policy: Decider
    victims: Scores


@dataclass(frozen=True)
class Teacher:
    """Who is imitated under one condition.

    Attributes:
        env: The condition.
        stretch: What the lengths of its trace are multiplied by.
        name: Name of the rule.
        rule: What decides.
        gain: Its weighted goodput over that of the first that was tried, on the same pieces.
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
                    length = one.requests_per_scenario * (1 if stretch.is_stretch else LONG)
                    source, trials = (
                        ScenarioSource(env.replace(trace=(trace,)), drawn, "train")
                        for drawn in (one, one.replace(requests_per_scenario=length))
                    )
                    conditions.append(TaughtCondition(source, trials, stretch, trace, slo_factor))
    return conditions


def home_teachers(
    policy: ExportedPolicy,
    specialist: ExportedPolicy | None = None,
    searched: ExportedPolicy | None = None,
) -> dict[str, Rule]:
    """Return who may teach a policy where lengths are as recorded, by name.

    Args:
        policy: Who is to learn.
        specialist: Another that may teach, shown what the policy is shown; the policy itself where
            there is none.
        searched: What a search has made of it for this trace and SLO tightness, if there was one.
    """
    name, base = (OWN_RULE, policy) if specialist is None else (SPECIALIST, specialist)
    rules = {
        name: _rule(base),
        f"{name} {FULL}": _rule(base, full=True),
        f"{PATIENT} {OWN_RULE}": _rule(policy, patient=True),
    }
    if searched is not None:
        rules[SEARCHED] = _rule(searched)
        rules[f"{SEARCHED} {FULL}"] = _rule(searched, full=True)
    return rules


def stretched_teachers(
    policy: ExportedPolicy, specialist: ExportedPolicy | None = None
) -> dict[str, Rule]:
    """Return who may teach a policy where lengths are stretched, by name, the policy itself first.

    Args:
        policy: Who is to learn.
        specialist: Another that may teach, shown what the policy is shown.
    """
    greedy = linear_score(
        GREEDY,
        admit={"density": 5.0},
        preempt={},
        layout=policy.card.observation,
        screen=policy.card.screen,
    )
    rules = {
        OWN_RULE: _rule(policy),
        f"{OWN_RULE} {FULL}": _rule(policy, full=True),
        f"{GREEDY} {TURNS}": _rule(greedy, turns=True),
        f"{PATIENT} {GREEDY} {TURNS}": _rule(greedy, patient=True, turns=True),
        f"{PATIENT} {OWN_RULE} {FULL} {TURNS}": _rule(policy, full=True, patient=True, turns=True),
    }
    if specialist is not None:
        rules[SPECIALIST] = _rule(specialist)
        rules[f"{SPECIALIST} {FULL}"] = _rule(specialist, full=True)
    return rules


def _rule(
    base: ExportedPolicy, *, full: bool = False, patient: bool = False, turns: bool = False
) -> Rule:
    seen = base.card.observation
    preempt = {"tpot_slack": 1.0} if turns else {"computed": -1.0}
    victims = linear_score("victims", admit={}, preempt=preempt, layout=seen)
    parts: dict[Part, Scores] = {"victims": victims}
    if full:
        parts["level"] = FixedLevel(seen.prefill_levels, seen.prefill_levels[-1])
    decider: Decider = PartsPolicy(base.name, base, parts)
    if patient:
        decider = HeadOfLine(decider, LeastSlack(seen), seen)
    return Rule(decider, victims)


def best_teachers(
    policy: ExportedPolicy,
    specialist: ExportedPolicy | None,
    conditions: Sequence[TaughtCondition],
    seed: int,
    specialists: Mapping[tuple[str, float], ExportedPolicy] | None = None,
) -> Trials:
    """Return who does best on pieces of each condition.

    At home that is whoever has the highest mean, on stretched traces the policy itself unless
    another gains some standard errors.

    Args:
        policy: Who is to learn.
        specialist: Another that may teach.
        conditions: Where.
        seed: Draws the pieces.
        specialists: Who else may teach at home, by trace and SLO factor.
    """
    teachers: list[Teacher] = []
    num_requests = 0
    specialists = specialists or {}
    for place, group in groupby(conditions, key=_place):
        if place is None:
            rules = stretched_teachers(policy, specialist)
            found = _tried(rules, list(group), seed, NUM_TRIALS, _SURE)
        else:
            rules = home_teachers(policy, specialist, specialists.get(place))
            found = _tried(rules, list(group), seed, NUM_HOME_TRIALS, 0.0)
        teachers += found.teachers
        num_requests += found.num_requests
    return Trials(teachers, num_requests)


def _place(condition: TaughtCondition) -> tuple[str, float] | None:
    """Return the trace and SLO factor of a condition at home, or None."""
    if condition.stretch.is_stretch:
        return None
    return condition.trace, condition.slo_factor


def _tried(
    choices: Mapping[str, Rule],
    conditions: Sequence[TaughtCondition],
    seed: int,
    num_trials: int,
    num_errors: float,
) -> Trials:
    """Return whose gain over the first choice is highest, less so many standard errors."""
    pieces = [one.trials.draw(num_trials, seed, _CHOICE_DRAW) for one in conditions]
    together = [piece for few in pieces for piece in few]
    goodputs = {
        name: np.array([goodput_weighted(one) for one in serve_together(together, rule.policy)])
        for name, rule in choices.items()
    }
    first = goodputs[next(iter(choices))]
    gains = {name: (one - first).reshape(-1, num_trials) for name, one in goodputs.items()}
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
