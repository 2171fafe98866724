"""Build the learning algorithm of an experiment."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sched_env.agents.export import env_layout, policy_spec
from sched_env.agents.policies import MaskableSchedulingPolicy, SchedulingPolicy
from sched_env.agents.ppo import ElapsedMaskablePPO, ElapsedPPO
from sched_env.agents.sb3 import SchedVecEnv
from sched_env.config import AgentConfig, ExperimentConfig

_ADAM_EPSILON = 1e-5


def rollout_size(agent: AgentConfig, total_decisions: int) -> tuple[int, int]:
    """Return environments and decisions of each between updates, at most ``total_decisions``."""
    num_envs = min(agent.num_envs, total_decisions)
    return num_envs, max(min(agent.num_steps, total_decisions // num_envs), 1)


def planned_decisions(agent: AgentConfig, total_decisions: int) -> int:
    """Return how many decisions a run takes: whole updates, at most ``total_decisions``."""
    num_envs, num_steps = rollout_size(agent, total_decisions)
    return total_decisions // (num_envs * num_steps) * num_envs * num_steps


def linear_schedule(start: float, final_fraction: float) -> Callable[[float], float]:
    """Return a rate that falls linearly from ``start`` to ``final_fraction`` of it."""

    def rate(progress_remaining: float) -> float:
        return start * (final_fraction + (1.0 - final_fraction) * progress_remaining)

    return rate


def late_schedule(start: float, end: float | None) -> Callable[[float], float] | None:
    """Return a value that moves from ``start`` to ``end`` over the second half, if they differ."""
    if end is None or end == start:
        return None

    def value(progress_remaining: float) -> float:
        return end + (start - end) * min(2.0 * progress_remaining, 1.0)

    return value


def make_model(experiment: ExperimentConfig, env: SchedVecEnv) -> ElapsedMaskablePPO | ElapsedPPO:
    """Return a fresh algorithm over ``env``; ``experiment.seed`` draws its weights."""
    agent = experiment.agent
    torch.set_num_threads(agent.num_threads)
    num_envs, num_steps = rollout_size(agent, experiment.total_decisions)
    masked = agent.algorithm == "maskable_ppo"
    algorithm = ElapsedMaskablePPO if masked else ElapsedPPO
    spec = policy_spec(agent, env_layout(experiment.env))
    return algorithm(
        MaskableSchedulingPolicy if masked else SchedulingPolicy,
        env,
        learning_rate=linear_schedule(agent.learning_rate, agent.final_learning_rate),
        critic_learning_rate=linear_schedule(agent.critic_learning_rate, agent.final_learning_rate),
        n_steps=num_steps,
        batch_size=min(agent.minibatch_size, num_envs * num_steps),
        n_epochs=agent.num_epochs,
        gae_lambda=agent.gae_lambda,
        clip_range=agent.clip_range,
        ent_coef=agent.entropy_coefficient,
        entropy_schedule=late_schedule(agent.entropy_coefficient, agent.final_entropy_coefficient),
        vf_coef=agent.value_coefficient,
        max_grad_norm=agent.max_grad_norm,
        policy_kwargs={"net_arch": spec, "optimizer_kwargs": {"eps": _ADAM_EPSILON}},
        seed=experiment.seed,
        device="cpu",
        verbose=0,
    )
