"""Cloning of a teacher for each condition: one network learns what serves where.

A linear rule has one prefill level for all that it cannot tell apart. Here every condition, which
is a trace, an SLO tightness and a KV pool, has a teacher of its own: the policy as it is, or at one
fixed level, whichever does best on pieces of the training split. The network is not told the
condition. It learns from what it observes to decide as the teacher of the condition would: first on
states that the teachers visit, then on those that it visits itself (Ross et al., A reduction of
imitation learning and structured prediction to no-regret online learning, 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sched_env.agents.export import exported_weights, torch_actor
from sched_env.agents.score_search.scenarios import (
    Budget,
    Condition,
    ScenarioSet,
    ScenarioSource,
)
from sched_env.agents.score_search.search import VALIDATION_DRAW
from sched_env.config import EnvConfig
from sched_env.config.tuning import TuningConfig
from sched_env.engine.setup import run_world
from sched_env.metrics.slo import goodput_weighted
from sched_env.policy.parts import PartsPolicy
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.simulator.deciding_run import AskingRun, Decider
from sched_env.simulator.result import read_result
from sched_env.simulator.simulate import DRAIN_FACTOR, seen_by

NUM_ROUNDS = 3
NUM_TRIALS = 6
"""Pieces of the training split on which the teachers of one condition are compared."""

_NUM_EPOCHS = 6
_MINIBATCH_SIZE = 1024
_LEARNING_RATE = 2e-3
_CHOICE_DRAW, _FIRST_DRAW = 2**30, 2**30 + 1
_DECISIONS_PER_CALL = 1_000_000


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
class Teacher:
    """Who is imitated under one condition.

    Attributes:
        env: The condition.
        level: Its fixed prefill level; None: the rule of the policy itself.
        policy: What decides.
        gain: Its weighted goodput over that of the policy itself, on the training pieces.
    """

    env: EnvConfig
    level: float | None
    policy: Decider
    gain: float


class States(NamedTuple):
    """Visited states and what the teacher does there.

    Attributes:
        observations: float32 (num_states, num_public).
        masks: bool (num_states, num_actions).
        actions: int64 (num_states,).
    """

    observations: NDArray[np.float32]
    masks: NDArray[np.bool_]
    actions: NDArray[np.int64]


@dataclass(frozen=True)
class CloneResult:
    """A network that has learned from its teachers.

    Attributes:
        policy: The network, or the policy as it was where that does better on the validation split.
            Its card tells what the cloning has spent and gained.
        teachers: Who taught it, by condition.
        goodputs: On the validation split, before and after.
    """

    policy: ExportedPolicy
    teachers: tuple[Teacher, ...]
    goodputs: Sequence[float]


@dataclass
class _Recorder:
    """Decides as ``actor``, and notes what ``teacher`` would have done."""

    teacher: Decider
    actor: Decider
    observations: list[NDArray[Any]] = field(default_factory=list)
    masks: list[NDArray[Any]] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)

    def act(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int64]:
        """Choose one action, for the only row."""
        taught = self.teacher.act(observations, masks)
        self.observations.append(observations[0].copy())
        self.masks.append(masks[0].astype(bool))
        self.actions.append(int(taught[0]))
        return taught if self.actor is self.teacher else self.actor.act(observations, masks)


def clone(
    policy: ExportedPolicy, env: EnvConfig, tuning: TuningConfig, seed: int, num_pieces: int
) -> CloneResult:
    """Let a pointer network learn from the best of its own variants under each condition.

    Args:
        policy: The network to begin with, which is also what the teachers vary.
        env: Traces, server and clients.
        tuning: Loads, SLO tightness, KV pools and sizes of pieces.
        seed: Draws the pieces and the minibatches.
        num_pieces: Pieces of the training split in each round, under each condition.

    Raises:
        TraceError: A trace cannot be read or is too short.
    """
    sources = _sources(seen_by(policy, env), tuning)
    teachers = [_best_teacher(policy, source, seed) for source in sources]
    trials = len(sources) * NUM_TRIALS * policy.card.observation.num_levels
    torch.manual_seed(seed)
    actor = torch_actor(policy)
    student = states = None
    visited: list[States] = []
    for round_ in range(NUM_ROUNDS):
        for source, teacher in zip(sources, teachers, strict=True):
            pieces = source.draw(num_pieces, seed, _FIRST_DRAW + round_)
            actor_now = student or teacher.policy
            visited += [_visit(piece, teacher.policy, actor_now) for piece in pieces]
        states = States(*(np.concatenate(column) for column in zip(*visited, strict=True)))
        _imitate(actor, states)
        weights = {**policy.weights, **exported_weights(actor.actor, actor.prior)}
        student = ExportedPolicy(policy.card, weights)
    assert student is not None
    assert states is not None
    agreed = student.act(states.observations, states.masks) == states.actions
    looks = _looks(env, tuning, seed, (policy, student))
    num_runs = trials + NUM_ROUNDS * num_pieces * len(sources) + 2 * tuning.validation_scenarios
    num_requests = num_runs * tuning.requests_per_scenario
    kept = student if looks[1] > looks[0] else policy
    training = {
        **policy.card.training,
        "clone_states": len(states.actions),
        "clone_agreement": float(np.mean(agreed)),
        "clone_requests": num_requests,
        "validation_goodput_before_cloning": looks[0],
        "validation_goodput": max(looks),
    }
    card = policy.card.model_copy(update={"training": training})
    return CloneResult(ExportedPolicy(card, kept.weights), tuple(teachers), looks)


def _looks(
    env: EnvConfig, tuning: TuningConfig, seed: int, policies: Sequence[ExportedPolicy]
) -> list[float]:
    """Return the weighted goodput of policies on the validation scenarios of a search."""
    source = ScenarioSource(seen_by(policies[0], env), tuning, "validation")
    conditions = source.draw(tuning.validation_scenarios, seed, VALIDATION_DRAW)
    scenarios = ScenarioSet(conditions, policies[0], Budget())
    return [scenarios.outcome(policy).goodput for policy in policies]


def _sources(env: EnvConfig, tuning: TuningConfig) -> list[ScenarioSource]:
    """Return a source of pieces for every trace, SLO tightness and KV pool."""
    return [
        ScenarioSource(
            env.replace(trace=(trace,)),
            tuning.replace(slo_factors=(slo_factor,), kv_factors=(kv_factor,)),
            "train",
        )
        for trace in env.trace
        for slo_factor in tuning.slo_factors
        for kv_factor in tuning.kv_factors
    ]


def _best_teacher(policy: ExportedPolicy, source: ScenarioSource, seed: int) -> Teacher:
    """Return the policy, or the fixed level of it that does best on pieces of one condition."""
    levels = policy.card.observation.prefill_levels
    pieces = source.draw(NUM_TRIALS, seed, _CHOICE_DRAW)
    choices: dict[float | None, Decider] = {None: policy}
    for level in levels[1:]:
        fixed = PartsPolicy(policy.name, policy, {"level": FixedLevel(levels, level)})
        choices[level] = fixed
    goodputs = {
        level: float(np.mean([_goodput(piece, decider) for piece in pieces]))
        for level, decider in choices.items()
    }
    best = max(choices, key=lambda level: goodputs[level])
    return Teacher(pieces[0].env, best, choices[best], goodputs[best] - goodputs[None])


def _goodput(piece: Condition, decider: Decider) -> float:
    return goodput_weighted(_run(piece, decider))


def _visit(piece: Condition, teacher: Decider, actor: Decider) -> States:
    """Return the states that ``actor`` visits in a piece."""
    notes = _Recorder(teacher, actor)
    _run(piece, notes)
    return States(np.array(notes.observations), np.array(notes.masks), np.array(notes.actions))


def _run(piece: Condition, decider: Decider) -> NDArray[Any]:
    """Return the requests of a piece after a decider has served them."""
    until_s = DRAIN_FACTOR * max(float(piece.table.arrival_time_s[-1]), 60.0)
    key = resolve_policy(piece.env.observation.screen)
    world = run_world(
        piece.env, piece.table, key, seed=piece.seed, until_s=until_s, count_itl=False
    )
    run = AskingRun(world, decider)
    run.begin()
    while not run.advance(_DECISIONS_PER_CALL):
        pass
    return read_result(world, 0, len(piece.table), 0, 0).requests


def _imitate(actor: Any, states: States) -> None:
    """Move the actor's logits towards the teachers' actions, by cross-entropy."""
    observations, masks, actions = (torch.from_numpy(array) for array in states)
    count = len(actions)
    num_steps = max(_NUM_EPOCHS * count // _MINIBATCH_SIZE, 1)
    actor.train()
    optimizer = torch.optim.Adam(actor.actor.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, num_steps)
    for _ in range(num_steps):
        rows = torch.randint(count, (min(_MINIBATCH_SIZE, count),))
        logits = actor(observations[rows], masks[rows])
        loss = torch.nn.functional.cross_entropy(logits, actions[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    actor.eval()


def teachers_csv(teachers: Sequence[Teacher]) -> str:
    """Return one row a condition: who taught, and what that gained on the training pieces."""
    lines = ["trace,slo_factor,num_blocks,level,gain"]
    for one in teachers:
        trace, service, server = Path(one.env.trace[0]).name, one.env.service, one.env.scheduler
        level = "" if one.level is None else f"{one.level:g}"
        lines.append(f"{trace},{service.slo_factor:g},{server.num_blocks},{level},{one.gain:.6f}")
    return "\n".join(lines) + "\n"
