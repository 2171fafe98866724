"""Output tokens: what a request notes when it gets some, and the gaps between them."""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_inline, compiled_part
from sched_env.engine.ending import first_token
from sched_env.engine.events import record
from sched_env.engine.memory import itl_counts_of, requests_of
from sched_env.engine.pool import note_blocks
from sched_env.engine.records import EVENT_FIRST_TOKEN
from sched_env.engine.sizes import blocks_to_grow

ITL_BINS = 2048
ITL_FIRST_S = 1e-5
ITL_RATIO = 1.01  # bin edges grow by 1 %: a percentile is known to 1 %


@compiled_part
def itl_bin(interval_s: float) -> int:
    """Return the bin of an inter-token latency."""
    if interval_s <= ITL_FIRST_S:
        return 0
    index = int(math.log(interval_s / ITL_FIRST_S) / math.log(ITL_RATIO))
    return min(index, ITL_BINS - 1)


@compiled_inline
def append_tokens(state: Any, request: Any, iterations: int, clock_s: float) -> None:
    """Append the output tokens of ``iterations`` batches to a request; the caller counts them.

    ``clock_s`` is the clock, for a loop to keep in a register.
    """
    if request.num_output_tokens == 0:
        first_token(state, request)
        record(state, EVENT_FIRST_TOKEN, requests_of(state)[request.row], 1, 0)
    elif state.num_itl_bins > 0:
        count_gaps(state, request.last_token_s, iterations, 1)
    request.last_token_s = clock_s
    request.num_output_tokens += iterations
    if iterations > 1:
        _catch_up(state, request, iterations)


@compiled_part
def _catch_up(state: Any, request: Any, iterations: int) -> None:
    """Note what the iterations after the first computed, for which blocks are counted already."""
    need = blocks_to_grow(request, iterations - 1, state.block_size)
    if state.enable_prefix_caching:
        note_blocks(state, request, need)
    request.num_blocks += need
    request.num_computed_tokens += iterations - 1


@compiled_part
def count_gaps(state: Any, last_token_s: float, iterations: int, num_requests: int) -> None:
    """Count the time between the last token of requests and the first of this stretch."""
    ended_s = state.clock_s if iterations == 1 else state.first_end_s
    itl_counts_of(state)[itl_bin(ended_s - last_token_s)] += num_requests
