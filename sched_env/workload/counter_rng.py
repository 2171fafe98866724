"""Random numbers by counter: a value depends on (seed, row, stream) and on nothing else.

Whatever order requests are visited in, in one environment or in a thousand, compiled or as plain
Python, the same row of the same episode draws the same number. The mixing function is the
finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014), applied once for each of the three keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba.extending
import numpy as np

from sched_env.compiled import compiled, compiled_part

CLASS_STREAM = 1
SLO_JITTER_STREAM = 2
LENGTH_PREDICTION_STREAM = 3

_SECOND_UNIFORM = 1 << 32
_GOLDEN = 0x9E37_79B9_7F4A_7C15
_DRAW_DOMAIN = 0x5C4D_0001
_MIX_DOMAIN = 0x5C4D_0002


def as_uint64(value: int) -> int:
    """Return ``value`` modulo 2^64: a Python int here, a wrapping ``uint64`` when compiled."""
    return int(value) & 0xFFFF_FFFF_FFFF_FFFF


@numba.extending.overload(as_uint64)
def _as_uint64_compiled(value: Any) -> Callable[[Any], Any]:
    def implementation(value: Any) -> Any:
        return np.uint64(value)

    return implementation


@compiled_part
def _absorb(state: int, key: int) -> int:
    """Mix ``key`` into the 64-bit ``state`` (a bijection in the key)."""
    z = as_uint64((state ^ as_uint64(key)) + as_uint64(_GOLDEN))
    z = as_uint64((z ^ (z >> as_uint64(30))) * as_uint64(0xBF58_476D_1CE4_E5B9))
    z = as_uint64((z ^ (z >> as_uint64(27))) * as_uint64(0x94D0_49BB_1331_11EB))
    return z ^ (z >> as_uint64(31))


@compiled
def uniform(seed: int, row: int, stream: int) -> float:
    """Draw a float64 in [0, 1), with 53 random bits, from the counter (seed, row, stream)."""
    state = _absorb(_absorb(_absorb(as_uint64(_DRAW_DOMAIN), seed), row), stream)
    return float(state >> as_uint64(11)) * 2.0**-53


@compiled
def normal(seed: int, row: int, stream: int) -> float:
    """Draw a standard normal float64 from the counter (Box and Muller, 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(seed, row, stream)))
    return radius * math.cos(2.0 * math.pi * uniform(seed, row, stream + _SECOND_UNIFORM))


@compiled
def mix(seed: int, value: int) -> int:
    """Derive a sub-seed from a seed and a number: a non-negative int64.

    An episode's seed is that of the environment mixed with the index of the episode.
    """
    state = _absorb(_absorb(as_uint64(_MIX_DOMAIN), seed), value)
    return np.int64(state >> as_uint64(1))  # pyright: ignore[reportReturnType]
