"""What a request of the scheduler for scripts may be given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from sched_env.errors import ConfigError
from sched_env.simulator.number_checks import is_number, is_whole

MOST_TOKENS = 2**30
_LEAST_ID, _MOST_ID = -(2**63), 2**63 - 1


def check_hash_ids(hash_ids: object) -> None:
    """Refuse what is no list of ids of a prompt's content.

    Raises:
        ConfigError: It is none.
    """
    is_list = isinstance(hash_ids, Sequence) and not isinstance(hash_ids, str | bytes)
    is_array = isinstance(hash_ids, np.ndarray) and hash_ids.ndim == 1
    if not (is_list or is_array) or not all(map(_is_hash_id, cast("Sequence[object]", hash_ids))):
        raise ConfigError(f"hash_ids is {hash_ids!r}: give a list of whole numbers of 64 bits")


def _is_hash_id(value: object) -> bool:
    return is_whole(value) and _LEAST_ID <= value <= _MOST_ID


def can_be_hashed(value: object) -> bool:
    """Tell whether a value can be a request's id."""
    try:
        hash(value)
    except TypeError:  # a list, or a tuple of one
        return False
    return True


def is_finite_number(value: Any) -> bool:
    """Tell whether a value is a finite number, Python's or NumPy's, and no flag."""
    return is_number(value) and math.isfinite(value)


def check_count(name: str, value: object, lowest: int) -> None:
    """Refuse what is no number of tokens.

    Raises:
        ConfigError: It is not a whole number from ``lowest`` to ``MOST_TOKENS``.
    """
    if not (is_whole(value) and lowest <= value <= MOST_TOKENS):
        raise ConfigError(
            f"{name} is {value!r}: give a whole number from {lowest} to {MOST_TOKENS}"
        )
