"""Who may teach a policy: by what rules, and under what names.

Where lengths are as recorded, *at home*, the specialist may, which is the network that was polished
there, with the prefill levels that it wants or at the full one, or a *patient* policy, which admits
nobody but the request with least slack, and keeps what is free for it until it fits: where small
requests keep coming, a large one would find no room.

Where lengths are stretched, the policy itself may, also at the full level, the specialist, or one
of three that preempt *by turns* whoever is furthest ahead of its TPOT SLO, for where long outputs
share little memory, that serves more of them. All others preempt the request that has computed
least, for that throws least away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_env.policy.card import ObservationSchema
from sched_env.policy.parts import Part, PartsPolicy, Scores
from sched_env.policy.runtime import ExportedPolicy
from sched_env.policy.scores import linear_score
from sched_env.simulator.deciding_run import Decider

OWN_RULE = "own"
"""Name of the policy itself among the teachers."""

SPECIALIST = "specialist"
"""Name of another policy among the teachers."""

GREEDY = "weighted_sjf"
"""Name of the rule that admits whatever fits, shortest weighted job first, at the full level."""

PATIENT = "patient"
"""What stands before the name of who waits for the request with least slack to fit."""

FULL = "full"
"""What stands behind the name of who takes the full prefill level, whatever it wants."""

TURNS = "turns"
"""What stands behind the name of who preempts the request furthest ahead of its TPOT SLO."""

NUM_CANDIDATES = 24
"""Requests, of those that come first in the queue's own order, one of whom a patient teacher waits
for: who waits for any of all waits for those that cost most."""

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


class Rule(NamedTuple):
    """Who may teach.

    Attributes:
        policy: What decides.
        victims: Whom it preempts, wherever somebody may be.
    """

    policy: Decider
    victims: Scores


def home_teachers(
    policy: ExportedPolicy, specialist: ExportedPolicy | None = None
) -> dict[str, Rule]:
    """Return who may teach a policy where lengths are as recorded, by name.

    Args:
        policy: Who is to learn.
        specialist: Another that may teach, shown what the policy is shown; the policy itself where
            there is none.
    """
    name, base = (OWN_RULE, policy) if specialist is None else (SPECIALIST, specialist)
    return {
        name: _rule(base),
        f"{name} {FULL}": _rule(base, full=True),
        f"{PATIENT} {OWN_RULE}": _rule(policy, patient=True),
    }


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
