"""The records of the waiting requests: their cells, their places in the order, their lanes."""

from __future__ import annotations

import numpy as np

from sched_env.engine.layout import RESTING
from sched_env.engine.records import in_whole_lines

MOST_LANES = 64
"""Lanes of waiting requests that there is room for."""

# A place in the service order of the front: what every decision looks at of the request there.
PLACE = np.dtype(
    [
        ("cell", "u4"),  # where it lies; without a sign, for a negative index counts from the end
        ("whole_blocks", "i4"),  # KV blocks of the sequence so far
        ("moved_at_iteration", "i4"),
        ("density", "f4"),
        ("key", "f8"),  # that of its request, which mostly decides where another one goes
        ("arrival_time_s", "f8"),
        ("urgent_weight", "f8"),  # its weight where the slot shows that it is urgent, 0 elsewhere
        ("late_weight", "f8"),
        ("slot", "i4"),  # of the observation that was written last; -1: it is shown in none
    ],
    align=True,
)

# A waiting request of the front, in two lines of a cache of 64 bytes: what is looked at when time
# has passed and when it gives way to another one, then how it is shown and the rest of its key.
WAITER = in_whole_lines(
    [
        ("arrival_time_s", "f8"),
        ("ttft_slo_s", "f8"),
        ("lone_prefill_s", "f8"),
        ("first_token_s", "f8"),
        ("allowed_s", "f8"),  # from the first token on, for the tokens put out
        ("key", "f8"),  # service order: smaller (key, second_key, tie) first
        ("row", "i4"),
        ("num_tokens", "i4"),  # of the sequence so far
        ("second_key", "f8"),
        ("tie", "i8"),
        ("resting", RESTING),
        ("weight", "f8"),
    ]
)

LANE = np.dtype(
    [
        ("value", "f8"),
        ("key", "f8"),  # of its first request, when the head was last looked for
        ("second_key", "f8"),
        ("tie", "i8"),
        ("first", "i4"),  # rows
        ("last", "i4"),
    ],
    align=True,
)
