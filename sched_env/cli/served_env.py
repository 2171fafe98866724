"""The environment that finished policies are run in, for the commands that compare and simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sched_env.cli.idle_overrides import Key, refuse_idle
from sched_env.config import EnvConfig, load_config

DEFAULT_ENV = "h100_8b_small_kv"

_IDLE: Mapping[Key, str] = {
    ("observation",): "a policy is shown what it was trained on",
    ("reward",): "only training has rewards",
    ("scheduler", "policy"): "the policy that is run decides the order",
}
"""What has no say wherever finished policies run, and why."""

_IDLE_HERE: Mapping[Key, str] = {
    **_IDLE,
    ("trace",): "give --trace",
    ("split",): "give --split",
    ("episode",): "whole traces are run, at the rate of --load",
}
"""What has no say in a command that takes an environment, and what has."""

_IDLE_IN_ARENA: Mapping[Key, str] = {
    **{("env", *key): why for key, why in _IDLE.items()},
    ("env", "trace"): "give traces.LABEL",
    ("env", "split"): "give split",
    ("env", "episode"): "whole traces are run, at each of loads",
    ("env", "scheduler", "num_blocks"): "give kv_pools.LABEL",
    ("env", "service", "slo_factor"): "give slo_factors.LABEL",
}
"""The same for an arena, whose conditions set more of its environment."""


def served_env(name: str, overrides: Sequence[str]) -> EnvConfig:
    """Return the environment of that name, with changes of single values.

    Raises:
        ConfigError: A value is wrong, or would change nothing.
    """
    refuse_idle(overrides, _IDLE_HERE)
    return load_config(EnvConfig, name, overrides)


def check_arena_overrides(overrides: Sequence[str]) -> None:
    """Refuse changes of an arena that would change nothing.

    Raises:
        ConfigError: There is one.
    """
    refuse_idle(overrides, _IDLE_IN_ARENA)
