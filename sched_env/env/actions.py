"""Checking actions at the border of the environment."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from sched_env.engine.layout import NUM_LEVELS
from sched_env.errors import ConfigError

_LARGEST = 2**63
_INT64 = np.dtype(np.int64)


class EarlyCallError(ConfigError, ResetNeeded):
    """A call came before the first reset."""


def check_action(action: Any) -> int:
    """Return an action as a number that 64 bits hold; one beyond them is as illegal as -1.

    Raises:
        ConfigError: It is no whole number.
    """
    try:
        number = operator.index(action)
    except TypeError:
        raise ConfigError(f"action is {action!r}: give one whole number") from None
    return number if abs(number) < _LARGEST else -1


def check_actions(actions: Any, num_envs: int) -> NDArray[np.int64]:
    """Return the actions as int64 (num_envs,).

    Raises:
        ConfigError: There is not one whole number for each environment.
    """
    try:
        given = np.asarray(actions)
    except ValueError:  # lists of several lengths
        given = np.empty(0, dtype=object)
    if given.dtype == _INT64 and given.shape == (num_envs,) and given.flags.c_contiguous:
        return given
    if given.shape != (num_envs,) or given.dtype.kind not in "iu":
        raise ConfigError(
            f"actions are {given.dtype} {given.shape}: give one whole number for each of the "
            f"{num_envs} environments"
        )
    return np.ascontiguousarray(given, np.int64)


def refuse_illegal(
    actions: NDArray[np.int64],
    masks: NDArray[np.int8],
    playing: NDArray[np.bool_],
    name_of: Callable[[int], str],
) -> None:
    """Refuse actions that their masks forbid; ``name_of`` puts an action in words.

    Raises:
        ConfigError: One of them is illegal, in an environment that is playing.
    """
    for index in np.flatnonzero(playing):
        action, mask = int(actions[index]), masks[index]
        if not 0 <= action < mask.size or not mask[action]:
            legal = ", ".join(str(one) for one in np.flatnonzero(mask))
            raise ConfigError(
                f"action {action} ({name_of(action)}) is illegal in environment "
                f"{index}: legal are {legal}; use the mask in info['action_mask'], or "
                "episode.invalid_action: replace"
            )


def early_call(method: str) -> EarlyCallError:
    """Return the error of a call before the first reset."""
    return EarlyCallError(
        f"{method}() came before the first reset(): call reset() to start an episode"
    )


def action_name(action: int, num_actions: int) -> str:
    """Return an action in words, without its slot."""
    if not 0 <= action < num_actions:
        return "outside the action space"
    return "proceed" if action < NUM_LEVELS else "admit or preempt"
