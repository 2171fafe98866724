from __future__ import annotations

import numpy as np
import pytest

from sched_env.workload.readers.clock_ticks import measured_tick_s, spread_in_ticks


def test_a_grid_is_found_through_small_errors_and_a_fine_clock_is_not_one():
    rng = np.random.default_rng(0)
    fine = np.sort(rng.random(2000) * 600.0)
    grid = np.sort((fine // 3.0) * 3.0).astype(np.float64)
    assert measured_tick_s(grid) == pytest.approx(3.0)
    noise = rng.integers(-1, 2, 201)[np.round(grid / 3.0).astype(int)] * 0.001
    assert measured_tick_s(np.sort(grid + noise)) == pytest.approx(3.0, abs=0.002)
    assert measured_tick_s(fine) == 0.0
    assert measured_tick_s(np.zeros(50)) == 0.0


def test_bursts_at_irregular_times_are_no_clock():
    starts = np.sort(np.random.default_rng(1).random(100) * 600.0)
    assert measured_tick_s(np.repeat(starts, 10)) == 0.0


def test_spreading_fills_each_tick_evenly_and_keeps_ticks():
    rng = np.random.default_rng(0)
    ticks = np.sort(rng.integers(0, 200, 6000))
    spread = spread_in_ticks(ticks.astype(np.float64) * 3, 3.0, rng)
    assert np.all(np.diff(spread) >= 0)
    assert np.all(np.floor(spread / 3.0) == ticks)
    assert np.percentile((spread / 3.0) % 1, [25, 50, 75]) == pytest.approx(
        [0.25, 0.5, 0.75], abs=0.02
    )
