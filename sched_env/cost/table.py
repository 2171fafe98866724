"""From measured steps to the table that the compiled core interpolates.

At a measured step the table gives the measured time. Grid points that were not measured are filled
from the measured ones: the ratio of measured to formula is predicted by a Gaussian process whose
correlation falls off as exp(-distance / reach), the distance being the sum over the axes in
logarithmic coordinates (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
chapter 2 and section 4.2.1; with distances summed over axes, its predictions between the points of
a grid are close to linear along each axis).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.cost.measured import DECODE, MIXED, PREFILL, Floats, MeasuredSteps
from sched_env.cost.predict import formula_ms
from sched_env.cost.table_ratio import (
    DECODE_GRID,
    MAX_CELLS,
    MAX_LEVELS,
    MIXED_GRID,
    NUM_AXES,
    NUM_GRIDS,
    PREFILL_GRID,
)
from sched_env.errors import ConfigError

MAX_STEPS = 4000
"""Most measured steps of one phase; filling a grid takes their number cubed."""

_GRIDS = {DECODE: DECODE_GRID, PREFILL: PREFILL_GRID, MIXED: MIXED_GRID}
_AXES = ("n_decode", "ctx", "prefill_tokens", "prefill_past")
_OFFSETS = (1.0, 64.0, 16.0, 256.0)  # tokens, or sequences, below which an axis is nearly linear
_REACH = 8.0  # in octaves; from 4 to 32 the held-out error hardly changes
_MAX_GRID_CELLS = MAX_CELLS // NUM_GRIDS
_JITTER = 1e-10


def fill_table(cost: NDArray[Any], steps: MeasuredSteps, margin: float) -> None:
    """Write the table of measured steps into a COST array (1,) that holds the formula already.

    Raises:
        ConfigError: There are too many steps.
    """
    record = cost[0]
    record["has_table"] = 1
    record["table_starts"] = -1
    start = 0
    for phase, grid in _GRIDS.items():
        part = steps.take(steps.phases == phase)
        if len(part) == 0:
            continue
        if len(part) > MAX_STEPS:
            raise ConfigError(
                f"{steps.group}: {len(part)} {phase} steps are more than the {MAX_STEPS} that a "
                "table takes: leave some out, or fit two_regime"
            )
        levels = _levels(part)
        ratios = _grid_ratios(part, part.ms / formula_ms(cost, part), levels)
        record["table_starts"][grid] = start
        record["table_ratios"][start : start + ratios.size] = ratios.ravel()
        start += ratios.size
        for axis, values in enumerate(levels):
            place = grid * NUM_AXES + axis
            record["table_sizes"][place] = len(values)
            record["table_levels"][place * MAX_LEVELS :][: len(values)] = values
            record["table_limits"][place] = values[-1] * (1.0 + margin)


def _levels(steps: MeasuredSteps) -> list[Floats]:
    """Return the grid points along each axis: the measured values, thinned where they are many."""
    levels = [np.unique(getattr(steps, name)) for name in _AXES]
    most = MAX_LEVELS
    while np.prod([min(len(one), most) for one in levels], dtype=float) > _MAX_GRID_CELLS:
        most -= 1
    return [_thinned(one, most) for one in levels]


def _thinned(values: Floats, most: int) -> Floats:
    if len(values) <= most:
        return values
    return values[np.unique(np.linspace(0, len(values) - 1, most).round().astype(int))]


def _grid_ratios(steps: MeasuredSteps, ratios: Floats, levels: list[Floats]) -> Floats:
    """Return the ratio at every grid point, float64 (levels of each axis)."""
    values = np.stack([getattr(steps, name) for name in _AXES], axis=1)
    points, which = np.unique(values, axis=0, return_inverse=True)
    which = which.ravel()
    known = np.bincount(which, ratios) / np.bincount(which)
    shape = tuple(len(one) for one in levels)
    cells = np.stack(np.meshgrid(*levels, indexing="ij"), axis=-1).reshape(-1, NUM_AXES)
    grid = np.full(shape, np.nan)
    on_grid = np.all([np.isin(points[:, i], one) for i, one in enumerate(levels)], axis=0)
    places = tuple(np.searchsorted(one, points[on_grid, i]) for i, one in enumerate(levels))
    grid[places] = known[on_grid]
    missing = np.isnan(grid.ravel())
    if missing.any():
        grid.ravel()[missing] = _predicted(points, known, cells[missing])
    return grid


def _predicted(points: Floats, known: Floats, wanted: Floats) -> Floats:
    """Return the ratios at ``wanted`` (m, 4) from those ``known`` (n,) at ``points`` (n, 4)."""
    here, there = _coordinates(points), _coordinates(wanted)
    mean = known.mean()
    correlation = _correlation(here, here) + _JITTER * np.eye(len(here))
    weights = np.linalg.solve(correlation, known - mean)
    return mean + _correlation(there, here) @ weights


def _coordinates(points: Floats) -> Floats:
    return np.log2(points + np.array(_OFFSETS))


def _correlation(left: Floats, right: Floats) -> Floats:
    distance = np.zeros((len(left), len(right)))
    for axis in range(NUM_AXES):
        distance += np.abs(left[:, axis][:, None] - right[:, axis][None])
    return np.exp(-distance / _REACH)
