"""The Gymnasium face: scalar and vector environments over the compiled core."""

from __future__ import annotations

from sched_env.env.decode import DecodeSchedulingEnv, DecodeSchedulingVectorEnv
from sched_env.env.scalar import ContinuousBatchingEnv
from sched_env.env.vector import ContinuousBatchingVectorEnv
from sched_env.env.wrappers import DictObservation, MaskInObservation

__all__ = [
    "ContinuousBatchingEnv",
    "ContinuousBatchingVectorEnv",
    "DecodeSchedulingEnv",
    "DecodeSchedulingVectorEnv",
    "DictObservation",
    "MaskInObservation",
]
