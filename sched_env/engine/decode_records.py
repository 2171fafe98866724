"""The records of an episode of the teaching machine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_env.engine.decode_machine import MACHINE_FIELDS

# What is drawn for an episode, each uniformly between a lowest and a highest value.
RANGES = (
    "num_requests",
    "arrival_gap_steps",
    "prompt_len",
    "max_new_tokens",
    "priority",
    "required_blocks",
)

_SETTINGS: list[tuple[str, str]] = [
    *((f"{name}_{end}", "i8") for name in RANGES for end in ("low", "high")),
    ("cache_hit_share", "f8"),
    ("preemptible_share", "f8"),
    ("deadline_share", "f8"),
    ("deadline_factor_low", "f8"),
    ("deadline_factor_high", "f8"),
    ("kv_blocks", "i8"),
    ("num_slots", "i8"),
    ("reward_goodput", "f8"),
    ("reward_miss", "f8"),
    ("reward_latency", "f8"),
    ("reward_preemption", "f8"),
    ("discount", "f8"),  # of one step
]

_STATE: list[tuple[str, str]] = [
    ("env_seed", "i8"),
    ("episode", "i8"),
    ("num_requests", "i8"),
    ("num_arrived", "i8"),
    ("num_done", "i8"),
    ("victim", "i8"),  # row preempted since the last step, or NONE
    ("free_before", "i8"),  # free blocks before that preemption
    ("total_weight", "f8"),
    ("terminated", "i1"),
    ("truncated", "i1"),
    # the environment step
    ("reward", "f8"),
    ("step_start", "i8"),
    ("invalid_actions", "i8"),
    ("decisions", "i8"),
    # counts of the episode
    ("num_met", "i8"),
    ("num_missed", "i8"),
    ("weight_met", "f8"),
    ("num_preemptions", "i8"),
]

# The fields of MACHINE come last, at other places than there: numba takes a record that begins with
# all fields of another for its subtype, and warns that it does.
EPISODE = np.dtype([*_SETTINGS, *_STATE, *MACHINE_FIELDS], align=True)


class DecodeArrays(NamedTuple):
    """The memory of N teaching machines, as it crosses from Python into compiled code."""

    state: NDArray[Any]  # EPISODE (N,)
    requests: NDArray[Any]  # DECODE_REQUEST (N, most requests), in order of arrival
    slots: NDArray[np.int64]  # (N, num_slots), rows shown, or NONE
    instance: NDArray[Any]  # DECODE_REQUEST (num_requests,), played by all; empty: drawn
