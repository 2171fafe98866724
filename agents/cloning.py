"""Cloning of a teacher for each condition: one network learns what serves where.

A linear rule has one prefill level for all that it cannot tell apart. Here every condition has a
teacher of its own (see `sched_env.agents.teachers`). The network is not told the condition. It
learns from what it observes to decide as the teacher of the condition would: first on states that
the teachers visit, then on those that it visits itself (Ross et al., A reduction of imitation
learning and structured prediction to no-regret online learning, 2011). Preemptions are rare, so it
learns whom to preempt wherever somebody may be, not only where the teacher preempts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from sched_env.agents.export import exported_weights, torch_actor
from sched_env.agents.prior_sources import around_score, prior_score
from sched_env.agents.score_search.scenarios import (
    Budget,
    Outcome,
    ScenarioSet,
    ScenarioSource,
)
from sched_env.agents.score_search.search import VALIDATION_DRAW
from sched_env.agents.teachers import (
    TaughtCondition,
    Teacher,
    best_teachers,
    serve_together,
    taught_conditions,
)
from sched_env.agents.widening import shown, widened
from sched_env.config import EnvConfig
from sched_env.config.experiment import CloningConfig, ObjectiveConfig
from sched_env.config.tuning import TuningConfig
from sched_env.policy.parts import Scores
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.deciding_run import Decider
from sched_env.simulator.simulate import seen_by

NUM_ROUNDS = 5

Progress = Callable[[float], None]
"""Is told which share of the rounds is done, 0 to 1."""

_NUM_EPOCHS = 6
_MINIBATCH_SIZE = 512
_LEARNING_RATE = 2e-3
_FIRST_DRAW = 2**30 + 1
_NOBODY = -1


class States(NamedTuple):
    """Visited states and what the teacher does there.

    Attributes:
        observations: float32 (num_states, num_public).
        masks: bool (num_states, num_actions).
        actions: int64 (num_states,).
        victims: int64 (num_states,), the action that preempts whom it would preempt; -1: nobody may
            be preempted.
    """

    observations: NDArray[np.float32]
    masks: NDArray[np.bool_]
    actions: NDArray[np.int64]
    victims: NDArray[np.int64]

    def at(self, rows: NDArray[np.int64]) -> States:
        """Return the states in these rows."""
        return States(
            self.observations[rows], self.masks[rows], self.actions[rows], self.victims[rows]
        )


@dataclass(frozen=True)
class CloneResult:
    """A network that has learned from its teachers.

    Attributes:
        policy: The network, or the policy as it was where that does better on the validation split.
            Its card tells which of the two it is, and what the cloning has spent and gained.
        teachers: Who taught it, by condition.
        goodputs: On the validation split, before and after.
    """

    policy: ExportedPolicy
    teachers: tuple[Teacher, ...]
    goodputs: Sequence[float]


class _Lesson(NamedTuple):
    """Who teaches under one condition, and on how many pieces of it in each round."""

    condition: TaughtCondition
    teacher: Teacher
    num_pieces: int


@dataclass
class _Recorder:
    """Decides as ``actor``, and notes what ``teacher`` would have done."""

    teacher: Decider
    actor: Decider
    victims: Scores
    first_victim: int
    rows: list[States] = field(default_factory=list)

    def act(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int64]:
        """Choose one action for each row."""
        taught = self.teacher.act(observations, masks)
        legal, first = masks.astype(bool), self.first_victim
        order = self.victims.logits(observations, masks)[:, first:]
        victims = first + np.where(legal[:, first:], order, -np.inf).argmax(axis=1)
        victims[~legal[:, first:].any(axis=1)] = _NOBODY
        self.rows.append(States(observations, legal, taught, victims))
        return taught if self.actor is self.teacher else self.actor.act(observations, masks)


def clone(
    policy: ExportedPolicy,
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int,
    cloning: CloningConfig,
    objective: ObjectiveConfig | None = None,
    progress: Progress | None = None,
) -> CloneResult:
    """Let a pointer network learn from the best teacher of each condition.

    Args:
        policy: The network to begin with, which is also what some of the teachers vary.
        env: Traces, server and clients.
        tuning: Loads, SLO tightness, KV pools and validation scenarios.
        seed: Draws the pieces and the minibatches.
        cloning: Pieces, stretches, and what else it is to have.
        objective: What teachers, and what is kept, are best at; goodput by default.
        progress: Called after each round with the share of them that is done, 0 to 1.

    Raises:
        PolicyError: The policy is of another kind, or is to be narrowed, or the prior is no score.
        TraceError: A trace cannot be read or is too short.
    """
    objective = objective or ObjectiveConfig()
    given, specialist = policy, None
    policy = shown(policy, cloning.num_waiting_slots, cloning.num_running_slots)
    if cloning.prior is not None:
        policy, specialist = around_score(policy, prior_score(cloning.prior)), policy
    if cloning.hidden_size is not None:
        policy = widened(policy, cloning.hidden_size, seed)
    tuning = pieces_of(cloning, tuning)
    tuned = tuning.replace(stretches=cloning.stretches)
    conditions = taught_conditions(seen_by(policy, env), tuned)
    trials = best_teachers(policy, specialist, conditions, seed, objective)
    lessons = [
        _Lesson(one, teacher, _share(one, cloning))
        for one, teacher in zip(conditions, trials.teachers, strict=True)
    ]
    budget = Budget(num_requests=trials.num_requests)
    student, visited = _learned(policy, lessons, seed, budget, progress)
    before, after = _looks(env, tuning, seed, budget, (given, student))
    is_better = objective.worth(*after) > objective.worth(*before)
    kept, look = (student, after) if is_better else (given, before)
    training = {
        **kept.card.training,
        "clone_states": sum(len(states.actions) for states in visited),
        "clone_agreement": _agreement(student, visited),
        "clone_requests": budget.num_requests,
        "clone_kept": is_better,
        "validation_goodput_of_clone": after.goodput,
        "validation_goodput_before_cloning": before.goodput,
        "validation_goodput": look.goodput,
    }
    if objective.p95_ttft_weight:
        training["validation_p95_ttft_s"] = look.p95_ttft_s
    card = kept.card.model_copy(update={"training": training})
    goodputs = [before.goodput, after.goodput]
    return CloneResult(ExportedPolicy(card, kept.weights), tuple(trials.teachers), goodputs)


def pieces_of(cloning: CloningConfig, tuning: TuningConfig) -> TuningConfig:
    """Return a search that is shown what the cloning is, on pieces as long as it learns on."""
    changed = {
        "num_waiting_slots": cloning.num_waiting_slots,
        "num_running_slots": cloning.num_running_slots,
        "requests_per_scenario": cloning.requests_per_piece,
    }
    return tuning.replace(**{key: count for key, count in changed.items() if count is not None})


def _share(condition: TaughtCondition, cloning: CloningConfig) -> int:
    """Return the pieces of one condition in each round."""
    if not condition.stretch.is_stretch:
        return cloning.pieces
    return max(cloning.pieces // len(cloning.stretches), 1)


def _learned(
    policy: ExportedPolicy,
    lessons: Sequence[_Lesson],
    seed: int,
    budget: Budget,
    progress: Progress | None,
) -> tuple[ExportedPolicy, list[States]]:
    """Return the network that has learned the lessons, and the states of each; count requests."""
    first_victim = policy.num_actions - policy.card.observation.num_running_slots
    torch.manual_seed(seed)
    actor, student = torch_actor(policy), None
    visited: list[States] = []
    for round_ in range(NUM_ROUNDS):
        for condition, teacher, num_pieces in lessons:
            pieces = condition.source.draw(num_pieces, seed, _FIRST_DRAW + round_)
            rule = teacher.rule
            notes = _Recorder(rule.policy, student or rule.policy, rule.victims, first_victim)
            served = serve_together(pieces, notes)
            budget.num_requests += sum(len(requests) for requests in served)
            visited.append(_joined(notes.rows))
        _imitate(actor, visited, first_victim)
        weights = {**policy.weights, **exported_weights(actor.actor, actor.prior)}
        student = ExportedPolicy(policy.card, weights)
        if progress is not None:
            progress((round_ + 1) / NUM_ROUNDS)
    assert student is not None
    return student, visited


def _joined(parts: Sequence[States]) -> States:
    return States(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _some(parts: Sequence[States], starts: NDArray[np.int64], rows: NDArray[np.int64]) -> States:
    """Return the states that stand in these rows of all parts, one after another.

    Joined, the parts would take their memory, which is gigabytes, twice for a while.

    Args:
        parts: The states.
        starts: int64 (len(parts),), rows before each of them.
        rows: int64 (num_rows,).
    """
    homes = np.searchsorted(starts, rows, side="right") - 1
    found = [parts[home].at(rows[homes == home] - starts[home]) for home in np.unique(homes)]
    return _joined(found).at(np.argsort(np.argsort(homes, kind="stable"), kind="stable"))


def _agreement(student: ExportedPolicy, visited: Sequence[States]) -> float:
    """Return in how many of the states the student does what the teacher would do."""
    agreed = [
        student.act(states.observations, states.masks) == states.actions for states in visited
    ]
    return float(np.mean(np.concatenate(agreed)))


def _looks(
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int,
    budget: Budget,
    policies: Sequence[ExportedPolicy],
) -> list[Outcome]:
    """Return how policies do on the validation scenarios of a search; count their requests."""
    looks = []
    for policy in policies:
        source = ScenarioSource(seen_by(policy, env), tuning, "validation")
        conditions = source.draw(tuning.validation_scenarios, seed, VALIDATION_DRAW)
        looks.append(ScenarioSet(conditions, policy, budget).outcome(policy))
    return looks


def _imitate(actor: Any, visited: Sequence[States], first_victim: int) -> None:
    """Move the actor's logits towards the teachers' actions, by cross-entropy."""
    lengths = [len(states.actions) for states in visited]
    starts, count = np.cumsum([0, *lengths[:-1]]), sum(lengths)
    num_steps = max(_NUM_EPOCHS * count // _MINIBATCH_SIZE, 1)
    actor.train()
    optimizer = torch.optim.Adam(actor.actor.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, num_steps)
    for _ in range(num_steps):
        rows = torch.randint(count, (min(_MINIBATCH_SIZE, count),)).numpy()
        observations, masks, actions, victims = map(torch.from_numpy, _some(visited, starts, rows))
        logits = actor(observations, masks)
        loss = cross_entropy(logits, actions)
        someone = victims != _NOBODY
        if bool(someone.any()):
            among = logits[someone, first_victim:]
            loss = loss + cross_entropy(among, victims[someone] - first_victim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    actor.eval()
