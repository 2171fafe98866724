"""Configuration: frozen pydantic models, and the loader of their YAML files."""

from __future__ import annotations

from sched_env.config.agent import AgentConfig
from sched_env.config.arena import ArenaConfig
from sched_env.config.cost import AffineCost, CostConfig, EngineOverhead, LiveCost, TwoRegimeCost
from sched_env.config.decode_env import (
    DecodeRequestConfig,
    DecodeRewardConfig,
    DecodeSchedulingConfig,
    DecodeWorkloadConfig,
)
from sched_env.config.env import (
    EnvConfig,
    EpisodeConfig,
    ObservationConfig,
    RewardConfig,
    Split,
)
from sched_env.config.experiment import ComparisonConfig, ExperimentConfig
from sched_env.config.loader import find_config, list_configs, load_config, to_yaml
from sched_env.config.model import ConfigModel
from sched_env.config.scheduler import SchedulerConfig
from sched_env.config.service import LengthPrediction, ServiceClass, ServiceConfig
from sched_env.config.tuning import TuningConfig

__all__ = [
    "AffineCost",
    "AgentConfig",
    "ArenaConfig",
    "ComparisonConfig",
    "ConfigModel",
    "CostConfig",
    "DecodeRequestConfig",
    "DecodeRewardConfig",
    "DecodeSchedulingConfig",
    "DecodeWorkloadConfig",
    "EngineOverhead",
    "EnvConfig",
    "EpisodeConfig",
    "ExperimentConfig",
    "LengthPrediction",
    "LiveCost",
    "ObservationConfig",
    "RewardConfig",
    "SchedulerConfig",
    "ServiceClass",
    "ServiceConfig",
    "Split",
    "TuningConfig",
    "TwoRegimeCost",
    "find_config",
    "list_configs",
    "load_config",
    "to_yaml",
]
