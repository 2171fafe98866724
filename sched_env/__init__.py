"""An RL environment for LLM inference scheduling, faithful to vLLM's scheduler.

Importing the package registers ``sched_env/ContinuousBatching-v0`` and
``sched_env/DecodeScheduling-v0`` with Gymnasium. The public names below are loaded when first used,
so the import itself stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sched_env.registration import register_envs

if TYPE_CHECKING:
    from sched_env.config import DecodeSchedulingConfig, EnvConfig, SchedulerConfig
    from sched_env.env import (
        ContinuousBatchingEnv,
        ContinuousBatchingVectorEnv,
        DecodeSchedulingEnv,
        DecodeSchedulingVectorEnv,
    )
    from sched_env.simulator import (
        DecodeSchedulerSim,
        RequestState,
        Scheduler,
        SimulationResult,
        simulate,
    )
    from sched_env.workload import RequestTable, read_trace

__version__ = "0.1.0"

__all__ = [
    "ContinuousBatchingEnv",
    "ContinuousBatchingVectorEnv",
    "DecodeSchedulerSim",
    "DecodeSchedulingConfig",
    "DecodeSchedulingEnv",
    "DecodeSchedulingVectorEnv",
    "EnvConfig",
    "RequestState",
    "RequestTable",
    "Scheduler",
    "SchedulerConfig",
    "SimulationResult",
    "__version__",
    "read_trace",
    "register_envs",
    "simulate",
]

_HOMES = {
    "ContinuousBatchingEnv": "sched_env.env",
    "ContinuousBatchingVectorEnv": "sched_env.env",
    "DecodeSchedulerSim": "sched_env.simulator",
    "DecodeSchedulingConfig": "sched_env.config",
    "DecodeSchedulingEnv": "sched_env.env",
    "DecodeSchedulingVectorEnv": "sched_env.env",
    "EnvConfig": "sched_env.config",
    "RequestState": "sched_env.simulator",
    "RequestTable": "sched_env.workload",
    "Scheduler": "sched_env.simulator",
    "SchedulerConfig": "sched_env.config",
    "SimulationResult": "sched_env.simulator",
    "read_trace": "sched_env.workload",
    "simulate": "sched_env.simulator",
}

register_envs()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sched_env' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
