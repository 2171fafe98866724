"""The environments by their Gymnasium ids; importing the package registers them."""

from __future__ import annotations

import gymnasium as gym

CONTINUOUS_BATCHING = "sched_env/ContinuousBatching-v0"
DECODE_SCHEDULING = "sched_env/DecodeScheduling-v0"

_PLACES = {
    CONTINUOUS_BATCHING: (
        "sched_env.env.scalar:ContinuousBatchingEnv",
        "sched_env.env.vector:ContinuousBatchingVectorEnv",
    ),
    DECODE_SCHEDULING: (
        "sched_env.env.decode:DecodeSchedulingEnv",
        "sched_env.env.decode:DecodeSchedulingVectorEnv",
    ),
}


def register_envs() -> None:
    """Register the environments with Gymnasium; more than once does no harm.

    They are made without Gymnasium's wrappers, which would take a tenth of a step: the environments
    refuse calls before the first reset themselves, and the tests run the checker.
    """
    for name, (entry_point, vector_entry_point) in _PLACES.items():
        if name not in gym.registry:
            gym.register(
                name,
                entry_point=entry_point,
                vector_entry_point=vector_entry_point,
                order_enforce=False,
                disable_env_checker=True,
            )
