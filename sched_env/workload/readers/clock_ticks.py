"""Coarse clocks: how coarse a trace's time stamps are, and spreading arrivals inside a tick.

Many arrivals on one stamp tell of the clock, not of bursts: BurstGPT counts whole seconds, the
Mooncake conversation trace sits on a grid of 3 s.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MIN_GAPS = 20
_MIN_ZERO_SHARE = 0.5
_MIN_ON_GRID_SHARE = 0.95
_GRID_TOLERANCE = 0.01


def measured_tick_s(arrival_time_s: npt.NDArray[np.float64]) -> float:
    """Return the tick of a coarse clock in seconds, or 0 if the arrivals do not show one.

    A clock counts as coarse if at least half of the gaps are zero and 95 % of the others lie
    within 1 % of a multiple of their median.
    """
    gaps = np.diff(arrival_time_s)
    steps = gaps[gaps > 0]
    if len(steps) < _MIN_GAPS or 1 - len(steps) / len(gaps) < _MIN_ZERO_SHARE:
        return 0.0
    tick_s = float(np.median(steps))
    multiples = np.maximum(1.0, np.round(steps / tick_s))
    on_grid = np.abs(steps / tick_s - multiples) <= _GRID_TOLERANCE * multiples
    return tick_s if np.mean(on_grid) >= _MIN_ON_GRID_SHARE else 0.0


def spread_in_ticks(
    arrival_time_s: npt.NDArray[np.float64], tick_s: float, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return sorted arrivals with those of each tick spread uniformly over it, float64 (n,).

    Rows keep their order; no arrival leaves its tick.
    """
    ticks = np.round(arrival_time_s / tick_s)
    within = rng.random(len(ticks))
    order = np.lexsort((within, ticks))
    return (ticks + within[order]) * tick_s
