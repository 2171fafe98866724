"""The environment that finished policies are run in, for the commands that compare and simulate."""

from __future__ import annotations

from collections.abc import Sequence

from sched_env.config import EnvConfig, load_config
from sched_env.config.merge import parse_override
from sched_env.errors import ConfigError

DEFAULT_ENV = "h100_8b_small_kv"

_INSTEAD = {
    "trace": "give --trace",
    "split": "give --split",
    "observation": "a policy is shown what it was trained on",
    "reward": "only training has rewards",
    "episode": "whole traces are run, at the rate of --load",
}
"""What has no say where finished policies run, and what has."""


def served_env(name: str, overrides: Sequence[str]) -> EnvConfig:
    """Return the environment of that name, with changes of single values.

    Raises:
        ConfigError: A value is wrong, or would change nothing.
    """
    for text in overrides:
        key = parse_override(text).path[0]
        if key in _INSTEAD:
            raise ConfigError(f"override {text!r} would change nothing here: {_INSTEAD[key]}")
    return load_config(EnvConfig, name, overrides)
