"""The environments by their Gymnasium ids; importing the package registers them."""

from __future__ import annotations

import gymnasium as gym

CONTINUOUS_BATCHING = "sched_env/ContinuousBatching-v0"


def register_envs() -> None:
    """Register the environments with Gymnasium; more than once does no harm."""
    if CONTINUOUS_BATCHING in gym.registry:
        return
    gym.register(
        CONTINUOUS_BATCHING,
        entry_point="sched_env.env.scalar:ContinuousBatchingEnv",
        vector_entry_point="sched_env.env.vector:ContinuousBatchingVectorEnv",
    )
