"""Whether a measured table reaches as far as the steps that a server can form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.cost.table_ratio import (
    DECODE_GRID,
    MIXED_GRID,
    NUM_AXES,
    NUM_GRIDS,
    PREFILL_GRID,
)
from sched_env.errors import ConfigError

_SEQUENCES, _CONTEXT, _CHUNK, _PAST = range(NUM_AXES)


def check_reach(
    cost: NDArray[Any], *, max_num_seqs: int, max_num_batched_tokens: int, longest_tokens: int
) -> None:
    """Refuse a table that ends before the limits of a server, its margin included.

    Each axis is checked by itself, over all kinds of step: a corner that was not measured (most
    sequences and longest context together) is extrapolated, and such steps are counted as they
    run.

    Args:
        cost: COST (1,); formulas reach everywhere.
        max_num_seqs: Most sequences of a step.
        max_num_batched_tokens: Most tokens of a step.
        longest_tokens: Longest prompt and output together.

    Raises:
        ConfigError: An axis ends too early.
    """
    if not (cost["has_table"][0] and cost["refuses_beyond"][0]):
        return
    chunk = min(max_num_batched_tokens, longest_tokens)
    decoding, prefilling = (DECODE_GRID, MIXED_GRID), (PREFILL_GRID, MIXED_GRID)
    _check(cost, _SEQUENCES, decoding, max_num_seqs, "sequences (max_num_seqs)")
    _check(cost, _CONTEXT, decoding, longest_tokens, "tokens of context (the longest request)")
    _check(cost, _CHUNK, prefilling, chunk, "prefill tokens (max_num_batched_tokens)")
    _check(cost, _PAST, prefilling, longest_tokens - chunk, "tokens before a chunk (long prompts)")


def _check(cost: NDArray[Any], axis: int, grids: tuple[int, ...], reached: int, what: str) -> None:
    starts = cost["table_starts"][0]
    limits = cost["table_limits"][0].reshape(NUM_GRIDS, NUM_AXES)
    limit = max((float(limits[grid, axis]) for grid in grids if starts[grid] >= 0), default=0.0)
    if reached > np.floor(limit):
        raise ConfigError(
            f"the measured step times end at {limit:.0f} {what} with their margin, and this server "
            f"can reach {reached}: lower its limits (max_model_len shortens requests), measure "
            "larger steps, raise cost.margin, or set cost.beyond to count"
        )
