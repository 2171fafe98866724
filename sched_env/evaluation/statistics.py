"""Means that resist outliers, and intervals for paired differences.

Policies are compared on the same cells (trace, load, seed), so the cell-by-cell difference is what
is resampled: the spread between cells that both policies share cancels out. Bias-corrected and
accelerated intervals follow B. Efron, "Better Bootstrap Confidence Intervals", JASA 82 (1987),
section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

IntervalMethod = Literal["bca", "percentile"]

CONFIDENCE = 0.95
NUM_RESAMPLES = 10_000
_RESAMPLES_AT_ONCE = 1_000
_NORMAL = NormalDist()

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval; NaN limits where one value leaves it undefined."""

    mean: float
    low: float
    high: float
    num_values: int


def interquartile_mean(values: npt.ArrayLike) -> float:
    """Return the mean of the middle half of the values; NaN if there are none.

    Values on the border of the middle half count in part, so that the result is exact for any
    number of values.
    """
    ordered = np.sort(_known(values))
    if ordered.size == 0:
        return float("nan")
    ends = np.arange(1, ordered.size + 1) / ordered.size
    starts = ends - 1 / ordered.size
    inside = np.clip(np.minimum(ends, 0.75) - np.maximum(starts, 0.25), 0, None)
    return float((ordered * inside).sum() / inside.sum())


def bootstrap_mean(
    values: npt.ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
    method: IntervalMethod = "bca",
    seed: int = 0,
) -> Interval:
    """Return the mean of the values with its bootstrap interval.

    Args:
        values: Observations (n,); NaN are left out.
        confidence: Probability that the interval is to cover, above 0 and below 1.
        num_resamples: Number of resamples.
        method: ``bca`` corrects bias and skew; ``percentile`` takes plain percentiles.
        seed: Seed of the resampling.

    Returns:
        The interval; its limits are NaN for fewer than two values.
    """
    known = _known(values)
    if known.size < 2:
        mean = float(known[0]) if known.size else float("nan")
        return Interval(mean, float("nan"), float("nan"), known.size)
    mean = float(known.mean())
    if np.all(known == known[0]):
        return Interval(mean, mean, mean, known.size)
    means = _resampled_means(known, num_resamples, np.random.default_rng(seed))
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    if method == "bca":
        tails = _corrected_tails(known, means, tails)
    low, high = np.quantile(means, tails).tolist()
    return Interval(mean, low, high, known.size)


def paired_difference(
    ours: npt.ArrayLike,
    theirs: npt.ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
    method: IntervalMethod = "bca",
    seed: int = 0,
) -> Interval:
    """Return the mean of ours - theirs with its paired bootstrap interval.

    Args:
        ours: Values of one policy (n,), by cell.
        theirs: Values of the other (n,), for the same cells in the same order; a pair with NaN on
            either side is left out.
        confidence: As in `bootstrap_mean`.
        num_resamples: As in `bootstrap_mean`.
        method: As in `bootstrap_mean`.
        seed: As in `bootstrap_mean`.
    """
    difference = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    return bootstrap_mean(
        difference, confidence=confidence, num_resamples=num_resamples, method=method, seed=seed
    )


def _known(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, np.float64).ravel()
    return array[~np.isnan(array)]


def _resampled_means(values: Floats, num_resamples: int, rng: np.random.Generator) -> Floats:
    means = np.empty(num_resamples)
    for start in range(0, num_resamples, _RESAMPLES_AT_ONCE):
        count = min(_RESAMPLES_AT_ONCE, num_resamples - start)
        chosen = rng.integers(0, values.size, (count, values.size))
        means[start : start + count] = values[chosen].mean(axis=1)
    return means


def _corrected_tails(values: Floats, means: Floats, tails: Floats) -> Floats:
    """Shift the tail probabilities for bias and skew, or return them where that is undefined."""
    mean = values.mean()
    below = float((means < mean).mean() + 0.5 * (means == mean).mean())
    # Leaving value i out moves the mean by (mean - value_i) / (n - 1).
    influence = values - mean
    spread = float((influence**2).sum())
    if not 0 < below < 1 or spread == 0:
        return tails
    bias = _NORMAL.inv_cdf(below)
    acceleration = float((influence**3).sum()) / (6 * spread**1.5)
    corrected = []
    for tail in tails.tolist():
        shifted = bias + _NORMAL.inv_cdf(tail)
        corrected.append(_NORMAL.cdf(bias + shifted / (1 - acceleration * shifted)))
    return np.array(corrected)
