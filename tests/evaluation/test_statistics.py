from __future__ import annotations

import math

import numpy as np
import pytest

from sched_env.evaluation.statistics import (
    bootstrap_mean,
    interquartile_mean,
    paired_difference,
)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([1, 2, 3, 4], 2.5),
        ([-100, 2, 3, 900], 2.5),  # the outer quarters do not count
        ([0, 1, 2, 3, 100], (0.75 * 1 + 2 + 0.75 * 3) / 2.5),
        ([7], 7),
        ([1, math.nan, 3], 2),
    ],
)
def test_interquartile_mean(values, mean):
    assert interquartile_mean(values) == pytest.approx(mean)


def test_interquartile_mean_of_nothing():
    assert math.isnan(interquartile_mean([math.nan]))


def test_one_value_has_a_mean_and_no_interval():
    interval = bootstrap_mean([0.25])
    assert (interval.mean, interval.num_values) == (0.25, 1)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


def test_equal_values_have_an_interval_of_no_width():
    interval = paired_difference([3, 4, 5], [1, 2, 3])
    assert (interval.mean, interval.low, interval.high) == (2, 2, 2)


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_a_seed_decides_the_interval(method):
    values = np.random.default_rng(1).exponential(size=20)
    first = bootstrap_mean(values, method=method, seed=4)
    assert first == bootstrap_mean(values, method=method, seed=4)
    assert first != bootstrap_mean(values, method=method, seed=5)
    assert first.low < first.mean < first.high


def test_percentile_interval_matches_the_normal_one_for_many_values():
    values = np.random.default_rng(0).normal(2.0, 1.0, 2000)
    interval = bootstrap_mean(values, method="percentile")
    half = 1.96 * values.std() / math.sqrt(values.size)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.003)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.003)


def test_bca_shifts_towards_the_long_tail():
    values = np.random.default_rng(0).lognormal(0, 1.2, 30)
    plain = bootstrap_mean(values, method="percentile")
    corrected = bootstrap_mean(values, method="bca")
    assert corrected.low > plain.low
    assert corrected.high > plain.high


def test_bca_covers_a_skewed_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        interval = bootstrap_mean(rng.exponential(size=25), num_resamples=1000)
        covered += interval.low <= 1.0 <= interval.high
    assert 0.86 <= covered / 200 <= 0.99


def test_pairing_removes_the_spread_that_both_share():
    rng = np.random.default_rng(0)
    cell = rng.normal(0, 10, 40)
    ours, theirs = cell + rng.normal(0.5, 0.1, 40), cell
    interval = paired_difference(ours, theirs)
    assert interval.low > 0.4
    assert interval.high < 0.6


def test_pairs_with_an_undefined_side_are_left_out():
    interval = paired_difference([1.0, math.nan, 3.0], [0.0, 1.0, math.nan])
    assert (interval.mean, interval.num_values) == (1.0, 1)
