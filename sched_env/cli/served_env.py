"""The environment that finished policies are run in, for the commands that compare and simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sched_env.config import EnvConfig, load_config
from sched_env.config.merge import Override, parse_override
from sched_env.config.yaml_text import is_mapping
from sched_env.errors import ConfigError

DEFAULT_ENV = "h100_8b_small_kv"

_Key = tuple[str, ...]

_IDLE: Mapping[_Key, str] = {
    ("observation",): "a policy is shown what it was trained on",
    ("reward",): "only training has rewards",
    ("scheduler", "policy"): "the policy that is run decides the order",
}
"""What has no say wherever finished policies run, and why."""

_IDLE_HERE: Mapping[_Key, str] = {
    **_IDLE,
    ("trace",): "give --trace",
    ("split",): "give --split",
    ("episode",): "whole traces are run, at the rate of --load",
}
"""What has no say in a command that takes an environment, and what has."""

_IDLE_IN_ARENA: Mapping[_Key, str] = {
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
    _refuse_idle(overrides, _IDLE_HERE)
    return load_config(EnvConfig, name, overrides)


def check_arena_overrides(overrides: Sequence[str]) -> None:
    """Refuse changes of an arena that would change nothing.

    Raises:
        ConfigError: There is one.
    """
    _refuse_idle(overrides, _IDLE_IN_ARENA)


def _refuse_idle(overrides: Sequence[str], idle: Mapping[_Key, str]) -> None:
    for text in overrides:
        override = parse_override(text)
        for key, why in idle.items():
            if _touches(override, key):
                raise ConfigError(f"override {text!r} would change nothing here: {why}")


def _touches(override: Override, key: _Key) -> bool:
    """Tell whether an override changes a key, something below it, or a mapping that holds it."""
    above = len(override.path)
    if override.path[: len(key)] == key:
        return True
    if key[:above] != override.path:
        return False
    found = override.value
    for part in key[above:]:
        if not is_mapping(found) or part not in found:
            return False
        found = found[part]
    return True
