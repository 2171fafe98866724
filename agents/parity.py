"""Check an export: does it choose as the network that it came from?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sched_env.agents.export import MaskedActor
from sched_env.agents.sb3 import SchedVecEnv, make_sb3_vec_env
from sched_env.config import ExperimentConfig
from sched_env.policy.runtime import ExportedPolicy, load_policy
from sched_env.simulator.simulate import seen_by

NUM_PARITY_STATES = 10_000
"""Visited states on which the exported policy must choose as the trained network does."""


@dataclass(frozen=True)
class Parity:
    """How an exported policy compares with the torch network it came from.

    Attributes:
        num_states: States compared.
        num_equal: States in which both choose the same action.
        max_logit_difference: Largest difference of a legal action's logit.
    """

    num_states: int
    num_equal: int
    max_logit_difference: float


def check_parity(
    actor: MaskedActor, policy: ExportedPolicy, observations: np.ndarray, masks: np.ndarray
) -> Parity:
    """Compare logits and actions of ``actor`` and ``policy``.

    Args:
        actor: The trained network.
        policy: What was exported of it.
        observations: float32 (num_states, num_public).
        masks: bool (num_states, num_actions).
    """
    with torch.no_grad():
        trained = actor(torch.from_numpy(observations), torch.from_numpy(masks)).numpy()
    exported = policy.logits(observations, masks)
    equal = np.argmax(trained, axis=1) == policy.act(observations, masks)
    difference = np.abs(trained - exported)[masks]
    return Parity(len(equal), int(equal.sum()), float(difference.max(initial=0.0)))


def visited_parity(
    env: SchedVecEnv, actor: MaskedActor, folder: Path, num_states: int = NUM_PARITY_STATES
) -> Parity:
    """Compare the network with its export on states that the export itself visits in ``env``."""
    policy = load_policy(folder)
    num_public = policy.observation_size
    states: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    observations: np.ndarray = env.reset()
    while sum(len(one) for one in states) < num_states:
        states.append(np.ascontiguousarray(observations[:, :num_public]))
        masks.append(env.action_masks().copy())
        env.step_async(policy.act(states[-1], masks[-1]))
        observations = env.step_wait()[0]
    visited = np.concatenate(states)[:num_states]
    return check_parity(actor, policy, visited, np.concatenate(masks)[:num_states])


def run_parity(
    experiment: ExperimentConfig,
    actor: MaskedActor,
    policy: ExportedPolicy,
    folder: Path,
    env: SchedVecEnv,
) -> Parity:
    """Compare the network of a training run with its export, where as much is seen as it reads.

    Args:
        experiment: What was trained.
        actor: The trained network.
        policy: What was exported of it.
        folder: Where that stands.
        env: The environments it was trained in, which show enough unless it came to see more.
    """
    seen = seen_by(policy, experiment.env)
    if seen.observation == experiment.env.observation:
        return visited_parity(env, actor, folder)
    other = make_sb3_vec_env(seen, env.num_envs, experiment.seed, conditions=experiment.conditions)
    try:
        return visited_parity(other, actor, folder)
    finally:
        other.close()
