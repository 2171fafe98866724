"""Seeds, reset options and saved states, for the scalar and the vector environment alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.errors import ConfigError, did_you_mean

STATE_ARRAYS = ("state", "slots", "heaps", "scratch")
"""The arrays of a world that an episode changes; the others are the same for ever."""

_OPTIONS = ("trace_offset", "warmup_s")


def server_seeds(seed: int | Sequence[int | None], num_envs: int) -> list[int | None]:
    """Return one seed for each server: ``seed + i``, or those of a sequence.

    Raises:
        ConfigError: A seed is negative, not a whole number, or their number is wrong.
    """
    seeds: list[Any]
    if isinstance(seed, int | np.integer):
        seeds = [int(seed) + index for index in range(num_envs)]
    else:
        seeds = list(seed)
    if len(seeds) != num_envs:
        raise ConfigError(f"{len(seeds)} seeds given for {num_envs} environments: give one each")
    for value in seeds:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and not (is_whole and 0 <= value < 2**63):
            raise ConfigError(f"seed {value!r} is not allowed: give a whole number from 0")
    return seeds


def apply_options(
    state: NDArray[Any], horizon_s: float, options: Mapping[str, Any] | None
) -> float | None:
    """Set the warm-up of a reset and return the offset in the trace, or ``None`` to draw it.

    Raises:
        ConfigError: An option is unknown, or not a number >= 0.
    """
    for name, value in (options or {}).items():
        if name not in _OPTIONS:
            hint = did_you_mean(name, _OPTIONS)
            raise ConfigError(f"no reset option {name!r}.{hint} Known: {', '.join(_OPTIONS)}")
        if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"reset option {name} is {value!r}: give seconds >= 0")
    given = options or {}
    if "warmup_s" in given:
        state["warmup_s"] = float(given["warmup_s"])
        state["horizon_s"] = horizon_s + float(given["warmup_s"])
    return float(given["trace_offset"]) if "trace_offset" in given else None


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a copy of an array's memory, uint8, which any format can store."""
    return np.frombuffer(array.tobytes(), np.uint8).copy()


def restore_bytes(array: NDArray[Any], saved: NDArray[np.uint8], name: str) -> None:
    """Write saved memory back into an array.

    Raises:
        ConfigError: It is not of the array's size.
    """
    if saved.nbytes != array.nbytes:
        raise ConfigError(
            f"saved {name} has {saved.nbytes} bytes, this environment {array.nbytes}: restore it "
            "into an environment of the same configuration and number of servers"
        )
    array[...] = np.frombuffer(saved.tobytes(), array.dtype).reshape(array.shape)
