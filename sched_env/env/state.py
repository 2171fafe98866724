"""Seeds, reset options and saved states, for the scalar and the vector environment alike."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_env.config import ConfigModel
from sched_env.config.model import LARGEST_SIZE
from sched_env.errors import ConfigError, did_you_mean
from sched_env.simulator.number_checks import is_number, is_whole
from sched_env.simulator.simulate import check_seed

_OPTIONS = ("trace_offset", "warmup_s")
_IDENTITY = "configuration"


def server_seeds(seed: int | Sequence[int | None], num_envs: int) -> list[int | None]:
    """Return one seed for each server: ``seed + i``, or those of a sequence.

    Raises:
        ConfigError: A seed is negative, not a whole number, or their number is wrong.
    """
    seeds: list[Any]
    if is_whole(seed):
        seeds = [int(seed) + index for index in range(num_envs)]
    elif isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str):
        seeds = list(seed)
    else:
        raise ConfigError(f"seed {seed!r} is not allowed: give a whole number from 0")
    if len(seeds) != num_envs:
        raise ConfigError(f"{len(seeds)} seeds given for {num_envs} environments: give one each")
    for value in seeds:
        if value is not None:
            check_seed(value)
    return seeds


def check_number(name: str, value: Any) -> None:
    """Refuse what is no number of things.

    Raises:
        ConfigError: It is not a whole number above 0, or too large for the core.
    """
    if not (is_whole(value) and 1 <= value <= LARGEST_SIZE):
        raise ConfigError(
            f"{name} {value!r} is not allowed: give a whole number from 1 to {LARGEST_SIZE}"
        )


class ResetOptions(NamedTuple):
    """What ``reset(options=...)`` asks for.

    Attributes:
        trace_offset_s: Where the episode starts, in recorded seconds of its trace; ``None``: drawn.
        warmup_s: Simulated seconds before the first observation; ``None``: as configured.
    """

    trace_offset_s: float | None = None
    warmup_s: float | None = None


def read_options(options: Mapping[str, Any] | None, longest_offset_s: float) -> ResetOptions:
    """Check the options of a reset.

    Args:
        options: As given to ``reset``.
        longest_offset_s: Span of the shortest trace.

    Raises:
        ConfigError: An option is unknown, not a number >= 0, or past the end of a trace.
    """
    if not isinstance(options, Mapping | None):
        raise ConfigError(
            f"reset options are {options!r}: give a mapping such as {{'warmup_s': 5}}"
        )
    given = dict(options or {})
    for name, value in given.items():
        if name not in _OPTIONS:
            hint = did_you_mean(str(name), _OPTIONS)
            raise ConfigError(f"no reset option {name!r}.{hint} Known: {', '.join(_OPTIONS)}")
        if not (is_number(value) and 0 <= value < math.inf):
            raise ConfigError(f"reset option {name} is {value!r}: give seconds >= 0")
    offset_s = given.get("trace_offset")
    if offset_s is not None and offset_s > longest_offset_s:
        raise ConfigError(
            f"reset option trace_offset is {offset_s!r}: the trace (its split) spans "
            f"{longest_offset_s:g} s, give no more"
        )
    return ResetOptions(offset_s, given.get("warmup_s"))


def set_warmup(
    state: NDArray[Any], horizon_s: float, warmup_s: float, chosen: NDArray[np.bool_]
) -> None:
    """Set the warm-up of the next episode of the chosen servers; the horizon follows it."""
    state["warmup_s"][chosen] = warmup_s
    state["horizon_s"][chosen] = horizon_s + warmup_s


def identity_of(
    config: ConfigModel, arrays: Mapping[str, NDArray[Any]], changing: Sequence[str]
) -> NDArray[np.uint8]:
    """Return a digest of all that decides an episode but its seed, and of its layout, uint8 (16,).

    Args:
        config: The configuration. Names of traces do not count, what is in them does.
        arrays: Arrays of the world by name.
        changing: Those that an episode changes.
    """
    values = dict(config.to_dict())
    for name in ("trace", "split"):
        values.pop(name, None)
    values["episode"] = {**values["episode"], "invalid_action": None}
    digest = hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16)
    for name, array in arrays.items():
        digest.update(repr(array.dtype).encode())  # versions may lay out the same bytes otherwise
        if name not in changing:
            digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def saved_state(
    memory: Mapping[str, NDArray[Any]],
    own: Mapping[str, NDArray[Any]],
    identity: NDArray[np.uint8],
) -> dict[str, NDArray[Any]]:
    """Return copies of all that an episode changes, in arrays that any format can store.

    Args:
        memory: Arrays of the world by name, whose memory comes out as uint8.
        own: Arrays of the environment itself, by name.
        identity: What :func:`identity_of` returned.
    """
    saved = {name: _as_bytes(array) for name, array in memory.items()}
    saved[_IDENTITY] = identity.copy()
    return {**saved, **{name: array.copy() for name, array in own.items()}}


def check_identity(saved: Any, identity: NDArray[np.uint8]) -> None:
    """Refuse a state of another configuration, trace or layout of records.

    Raises:
        ConfigError: It is such a state, or none at all.
    """
    if _saved_array(saved, _IDENTITY).tobytes() != identity.tobytes():
        raise ConfigError(
            "the saved state is that of another configuration, trace or version of sched-env: "
            "restore it into an environment of the same configuration and version"
        )


def restore_state(arrays: Mapping[str, NDArray[Any]], saved: Mapping[str, NDArray[Any]]) -> None:
    """Write what `saved_state` returned back into the arrays it was taken from, by name.

    Raises:
        ConfigError: An array is missing or of another size; nothing is changed then.
    """
    for name, array in arrays.items():
        found = _saved_array(saved, name)
        if found.nbytes != array.nbytes:
            raise ConfigError(
                f"saved {name} has {found.nbytes} bytes, this environment {array.nbytes}: restore "
                "it into an environment of the same number of servers"
            )
    for name, array in arrays.items():
        array[...] = np.frombuffer(saved[name].tobytes(), array.dtype).reshape(array.shape)


def _saved_array(saved: Any, name: str) -> NDArray[Any]:
    if not (isinstance(saved, Mapping) and isinstance(saved.get(name), np.ndarray)):
        raise ConfigError(f"the saved state has no array {name!r}: give what get_state returned")
    return saved[name]


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(array.tobytes(), np.uint8).copy()
