"""Teachers: who serves best under each condition, by trial on the training split.

A condition is a trace, its lengths as recorded or stretched, an SLO tightness and a KV pool.
Whoever does best on some pieces of it teaches there. Three bases are tried: the policy itself,
another that is given as specialist, and weighted shortest job first. Each of them is tried

- with the prefill levels that it wants, and at the full one;
- as it admits, and *patient*: it admits nobody but the request with least slack, and keeps what is
  free for it until it fits. Where small requests keep coming, a large one would find no room;
- preempting who has computed least, which throws least away, and *by turns*: preempting who is
  furthest ahead of its TPOT SLO. Where long outputs share little memory, that serves more of them.

All are tried on some pieces, and those that did best, if that is asked for, on longer ones, which
alone decide then: of many, some do well by luck, and some well until the queue has grown.
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
from sched_env.errors import UnknownNameError
from sched_env.metrics.slo import goodput_weighted
from sched_env.policy.card import ObservationSchema
from sched_env.policy.parts import Part, PartsPolicy, Scores
from sched_env.policy.runtime import ExportedPolicy
from sched_env.policy.scores import linear_score
from sched_env.simulator.deciding_run import Decider, run_together
from sched_env.simulator.result import read_result

NUM_FINALISTS = 3
"""Teachers that are tried on long pieces, beside the policy itself."""

LONG = 3
"""How many times as long those are: what ruins a window may win a piece."""

OWN_RULE = "own"
"""Name of the policy itself among the teachers."""

SPECIALIST = "specialist"
"""Name of another policy among the teachers."""

GREEDY = "weighted_sjf"
"""Name of the rule that admits whatever fits, shortest weighted job first."""

PATIENT = "patient"
"""What stands before the name of who waits for the request with least slack to fit."""

FULL = "full"
"""What stands behind the name of who takes the full prefill level, whatever it wants."""

TURNS = "turns"
"""What stands behind the name of who preempts the request furthest ahead of its TPOT SLO."""

NUM_CANDIDATES = 24
"""Requests, of those that come first in the queue's own order, one of whom a patient teacher waits
for: who waits for any of all waits for those that cost most."""

_BASES = (
    OWN_RULE,
    f"{OWN_RULE} {FULL}",
    SPECIALIST,
    f"{SPECIALIST} {FULL}",
    GREEDY,
)
RULES = tuple(
    f"{patience}{base}{turn}"
    for turn in ("", f" {TURNS}")
    for base in _BASES
    for patience in ("", f"{PATIENT} ")
)
"""Names of all that may teach."""

_CHOICE_DRAW = 2**30
_FINAL_DRAW = 2**30 - 1
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
        long_source: Longer ones.
        stretch: What the lengths of the trace are multiplied by.
    """

    source: ScenarioSource
    long_source: ScenarioSource
    stretch: StretchConfig


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
        name: Name of the rule, as in `teachers_of`.
        rule: What decides.
        gain: Its weighted goodput over that of the policy itself, on the pieces that decided.
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
    """Return every trace, at every stretch, SLO tightness and KV pool.

    Raises:
        TraceError: A trace cannot be read or is too short.
    """

    def source(
        trace: str, slo_factor: float, kv_factor: float, stretch: StretchConfig, length: int
    ) -> ScenarioSource:
        chosen = tuning.replace(
            slo_factors=(slo_factor,),
            kv_factors=(kv_factor,),
            stretches=(stretch,),
            requests_per_scenario=length,
        )
        return ScenarioSource(env.replace(trace=(trace,)), chosen, "train")

    length = tuning.requests_per_scenario
    return [
        TaughtCondition(
            source(trace, slo_factor, kv_factor, stretch, length),
            source(trace, slo_factor, kv_factor, stretch, length * LONG),
            stretch,
        )
        for stretch in tuning.stretches
        for trace in env.trace
        for slo_factor in tuning.slo_factors
        for kv_factor in tuning.kv_factors
    ]


def least_computed(policy: ExportedPolicy) -> ExportedPolicy:
    """Return what prefers the victim with the fewest computed tokens, shown what ``policy`` is."""
    return _victims(policy, computed=-1.0)


def furthest_ahead(policy: ExportedPolicy) -> ExportedPolicy:
    """Return what prefers the victim furthest ahead of its TPOT SLO, shown what ``policy`` is."""
    return _victims(policy, tpot_slack=1.0)


def _victims(policy: ExportedPolicy, **preempt: float) -> ExportedPolicy:
    return linear_score("victims", admit={}, preempt=preempt, layout=policy.card.observation)


def check_teachers(names: Sequence[str]) -> None:
    """Refuse a name that stands for no teacher.

    Raises:
        UnknownNameError: The message offers the nearest.
    """
    for name in names:
        if name not in RULES:
            raise UnknownNameError("teacher", name, RULES)


def teachers_of(
    policy: ExportedPolicy,
    specialist: ExportedPolicy | None = None,
    names: Sequence[str] = RULES,
) -> dict[str, Rule]:
    """Return who may teach a policy, by name, the policy itself first.

    Args:
        policy: Who is to learn.
        specialist: Another that may teach, shown what the policy is shown.
        names: Of `RULES`; those of a specialist are left out where there is none.

    Raises:
        UnknownNameError: A name is none of them.
    """
    check_teachers(names)
    seen = policy.card.observation
    greedy = linear_score(
        GREEDY, admit={"density": 5.0}, preempt={}, layout=seen, screen=policy.card.screen
    )
    full: dict[Part, Scores] = {"level": FixedLevel(seen.prefill_levels, seen.prefill_levels[-1])}
    bases: dict[str, tuple[ExportedPolicy, dict[Part, Scores]]] = {
        OWN_RULE: (policy, {}),
        f"{OWN_RULE} {FULL}": (policy, full),
        GREEDY: (greedy, {}),  # always at the full level
    }
    if specialist is not None:
        bases[SPECIALIST] = (specialist, {})
        bases[f"{SPECIALIST} {FULL}"] = (specialist, full)
    victims = {False: least_computed(policy), True: furthest_ahead(policy)}
    rules: dict[str, Rule] = {}
    for name in (OWN_RULE, *names):
        in_turn = name.endswith(f" {TURNS}")
        base_name = name.removeprefix(f"{PATIENT} ").removesuffix(f" {TURNS}")
        if base_name not in bases:
            continue
        base, level = bases[base_name]
        parts: dict[Part, Scores] = {**level, "victims": victims[in_turn]}
        decider: Decider = PartsPolicy(base.name, base, parts)
        if name.startswith(f"{PATIENT} "):
            decider = HeadOfLine(decider, LeastSlack(seen), seen)
        rules[name] = Rule(decider, victims[in_turn])
    return rules


def best_teachers(
    choices: Mapping[str, Rule],
    conditions: Sequence[TaughtCondition],
    seed: int,
    num_trials: int,
    num_long_trials: int = 0,
) -> Trials:
    """Return who does best on pieces of each condition; the first where nobody surely does better.

    Sure is a mean gain of some standard errors.

    Args:
        choices: Who may teach.
        conditions: Where.
        seed: Draws the pieces.
        num_trials: Pieces of each condition on which all are tried.
        num_long_trials: Long pieces on which the best of them are, which decide; 0: none are.
    """
    everywhere = {name: range(len(conditions)) for name in choices}
    pieces = [one.source.draw(num_trials, seed, _CHOICE_DRAW) for one in conditions]
    num_requests = len(choices) * sum(map(_num_requests, pieces))
    gains = _gains(choices, everywhere, pieces)
    candidates = [list(choices) for _ in conditions]
    if num_long_trials:
        candidates = [_finalists(gains, index) for index in range(len(conditions))]
        where = {
            name: [index for index, names in enumerate(candidates) if name in names]
            for name in choices
        }
        pieces = [one.long_source.draw(num_long_trials, seed, _FINAL_DRAW) for one in conditions]
        num_requests += sum(
            len(names) * _num_requests(few) for names, few in zip(candidates, pieces, strict=True)
        )
        gains = _gains(choices, where, pieces)
    teachers = []
    for index, condition in enumerate(conditions):
        best = max(candidates[index], key=lambda name: _sure_gain(gains[name][index]))
        gain = float(np.mean(gains[best][index]))
        teachers.append(Teacher(pieces[index][0].env, condition.stretch, best, choices[best], gain))
    return Trials(teachers, num_requests)


def _num_requests(pieces: Sequence[Condition]) -> int:
    return sum(len(one.table) for one in pieces)


def _gains(
    choices: Mapping[str, Rule],
    where: Mapping[str, Sequence[int]],
    pieces: Sequence[Sequence[Condition]],
) -> dict[str, dict[int, NDArray[np.float64]]]:
    """Return what each choice gains over the first, on each piece, by name and condition.

    Args:
        choices: Who is tried; the first is tried everywhere.
        where: Under which conditions, by name.
        pieces: As many of each condition.
    """
    goodputs: dict[str, dict[int, NDArray[np.float64]]] = {}
    for name, rule in choices.items():
        together = [piece for index in where[name] for piece in pieces[index]]
        found = [goodput_weighted(one) for one in serve_together(together, rule.policy)]
        rows = np.array(found).reshape(len(where[name]), len(pieces[0]))
        goodputs[name] = dict(zip(where[name], rows, strict=True))
    first = goodputs[next(iter(choices))]
    return {
        name: {index: found - first[index] for index, found in by_condition.items()}
        for name, by_condition in goodputs.items()
    }


def _finalists(gains: Mapping[str, Mapping[int, NDArray[np.float64]]], index: int) -> list[str]:
    """Return the first choice and those that did best under a condition, no two of them alike."""
    first, *others = gains
    chosen = [first]
    for name in sorted(others, key=lambda name: _sure_gain(gains[name][index]), reverse=True):
        found = gains[name][index]
        is_new = all(not np.array_equal(found, gains[other][index]) for other in chosen)
        if is_new and len(chosen) <= NUM_FINALISTS:
            chosen.append(name)
    return chosen


def _sure_gain(gains: NDArray[np.float64]) -> float:
    return float(np.mean(gains) - _SURE * np.std(gains) / len(gains) ** 0.5)


def serve_together(pieces: Sequence[Condition], decider: Decider) -> list[NDArray[Any]]:
    """Return the requests of each piece after a decider has served them."""
    worlds = [piece.world() for piece in pieces]
    if worlds:
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
