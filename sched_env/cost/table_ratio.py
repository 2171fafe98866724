"""A measured table inside the COST record, and its interpolation in compiled code.

The table holds, on three grids, what was measured over what the two-regime formula gives: steps
that only decode, by (sequences, context of each); steps that only prefill, by (chunk, past); mixed
steps by all four. Between grid points the ratio is interpolated linearly along each axis, beyond
the last ones it keeps its value, so that the formula extrapolates; ``is_beyond_table`` tells where
that goes further than the table's margin.
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part

MAX_LEVELS = 40
"""Most grid points along one axis."""

MAX_CELLS = 16_384
"""Most grid points of the three grids together."""

NUM_AXES = 4
"""Sequences, context of each, chunk, past; a grid has one level on an axis it does not have."""

DECODE_GRID, PREFILL_GRID, MIXED_GRID = 0, 1, 2
NUM_GRIDS = 3

TABLE_FIELDS = (
    ("table_starts", "i8", (NUM_GRIDS,)),  # first cell of each grid; -1: nothing was measured
    ("table_sizes", "i8", (NUM_GRIDS * NUM_AXES,)),  # levels of each axis
    ("table_levels", "f8", (NUM_GRIDS * NUM_AXES * MAX_LEVELS,)),
    ("table_limits", "f8", (NUM_GRIDS * NUM_AXES,)),  # last level, with the margin
    ("table_ratios", "f8", (MAX_CELLS,)),  # each grid in C order
)


@compiled_part
def mean_past(prefill_tokens: int, attention: float, min_chunk_tokens: float) -> float:
    """Return the ``past`` of the one chunk that has the attention of all chunks of a step."""
    if prefill_tokens == 0:
        return 0.0
    return max(attention / max(prefill_tokens, min_chunk_tokens) - 0.5 * prefill_tokens, 0.0)


@compiled_part
def _grid_of(cost: Any, num_decodes: int, prefill_tokens: int) -> int:
    """Return the grid for a step; the nearest of kin where its own was not measured; or -1."""
    if prefill_tokens == 0:
        return DECODE_GRID if cost.table_starts[DECODE_GRID] >= 0 else -1
    first = MIXED_GRID if num_decodes > 0 else PREFILL_GRID
    second = PREFILL_GRID + MIXED_GRID - first
    if cost.table_starts[first] >= 0:
        return first
    return second if cost.table_starts[second] >= 0 else -1


@compiled_part
def table_ratio(
    cost: Any, num_decodes: int, context_tokens: int, prefill_tokens: int, past: float
) -> float:
    """Return measured over formula for a step, interpolated; 1 where nothing was measured."""
    grid = _grid_of(cost, num_decodes, prefill_tokens)
    if grid < 0:
        return 1.0
    first = grid * NUM_AXES
    context = context_tokens / max(num_decodes, 1)
    i, i_share = _place(cost, first, num_decodes)
    j, j_share = _place(cost, first + 1, context)
    k, k_share = _place(cost, first + 2, prefill_tokens)
    m, m_share = _place(cost, first + 3, past)
    total = 0.0
    for up in range(2):
        weight = i_share if up else 1.0 - i_share
        if weight > 0.0:
            row = (i + up) * cost.table_sizes[first + 1]
            total += weight * _along_context(cost, first, row + j, j_share, k, k_share, m, m_share)
    return total


@compiled_part
def _place(cost: Any, axis: int, value: float) -> tuple[int, float]:
    """Return the level of an axis at or below a value, and the share of the next one."""
    size = cost.table_sizes[axis]
    if size < 2:
        return 0, 0.0
    base = axis * MAX_LEVELS
    below = base
    while below < base + size - 2 and cost.table_levels[below + 1] <= value:
        below += 1
    left, right = cost.table_levels[below], cost.table_levels[below + 1]
    return below - base, min(max((value - left) / (right - left), 0.0), 1.0)


@compiled_part
def _along_context(
    cost: Any,
    first: int,
    row: int,
    j_share: float,
    k: int,
    k_share: float,
    m: int,
    m_share: float,
) -> float:
    """Return the ratio between two contexts, each interpolated over chunk and past."""
    total = 0.0
    for up in range(2):
        weight = j_share if up else 1.0 - j_share
        if weight > 0.0:
            cell = (row + up) * cost.table_sizes[first + 2] + k
            total += weight * _along_chunk(cost, first, cell, k_share, m, m_share)
    return total


@compiled_part
def _along_chunk(cost: Any, first: int, row: int, k_share: float, m: int, m_share: float) -> float:
    total = 0.0
    for up in range(2):
        weight = k_share if up else 1.0 - k_share
        if weight > 0.0:
            size = cost.table_sizes[first + 3]
            cell = cost.table_starts[first // NUM_AXES] + (row + up) * size + m
            ratio = (1.0 - m_share) * cost.table_ratios[cell]
            if m_share > 0.0:
                ratio += m_share * cost.table_ratios[cell + 1]
            total += weight * ratio
    return total


@compiled_part
def is_beyond_table(
    cost: Any, num_decodes: int, context_tokens: int, prefill_tokens: int, past: float
) -> bool:
    """Tell whether a step lies beyond the largest measured ones by more than the margin."""
    grid = _grid_of(cost, num_decodes, prefill_tokens)
    if grid < 0:
        return True
    first = grid * NUM_AXES
    return (
        num_decodes > cost.table_limits[first]
        or context_tokens > cost.table_limits[first + 1] * max(num_decodes, 1)
        or prefill_tokens > cost.table_limits[first + 2]
        or past > cost.table_limits[first + 3]
    )
