"""Running scale of discounted returns, by which rewards are divided.

A backward sum ``R_k = r_k + discount_{k-1} R_{k-1}`` is kept per environment, where
``discount_k = exp(-dt_k / tau)`` belongs to the time between decisions k and k+1; rewards are
divided by the running standard deviation of R (Engstrom et al. 2020, "Implementation matters in
deep policy gradients", with a discount per decision in place of a constant one).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sched_env.compiled import compiled, compiled_part

_EPSILON = 1e-8
_MEAN, _VARIANCE, _COUNT = range(3)
_LANES, _IN_LANES = 8, 128  # NumPy's: sums side by side, and up to how many numbers
_MOST_HALVINGS, _ADD = 128, -1  # room for any batch; the two sums made last are to be added


class ReturnNormaliser:
    """Divide rewards by the running standard deviation of the discounted return."""

    def __init__(self, num_envs: int) -> None:
        """Start with no observation: mean 0, variance 1, weight 1e-4."""
        self.sums = np.zeros(num_envs)
        self.previous_discounts = np.ones(num_envs)
        self._moments = np.array([0.0, 1.0, 1e-4])

    @property
    def mean(self) -> float:
        """Return the running mean of the discounted return."""
        return float(self._moments[_MEAN])

    @property
    def variance(self) -> float:
        """Return the running variance of the discounted return."""
        return float(self._moments[_VARIANCE])

    @property
    def scale(self) -> float:
        """Return what rewards are divided by."""
        return math.sqrt(self.variance + _EPSILON)

    def __call__(self, rewards: np.ndarray, discounts: np.ndarray, dones: np.ndarray) -> np.ndarray:
        """Take one step of every environment into account and return scaled rewards.

        Args:
            rewards: float (num_envs,), as the environment paid them.
            discounts: float (num_envs,), discount of the time that this step took.
            dones: bool (num_envs,), True where the episode ended with this step.

        Returns:
            float32 (num_envs,).
        """
        scaled = np.empty(rewards.size, np.float32)
        history = (self.sums, self.previous_discounts, self._moments)
        _scale(rewards, discounts, dones, *history, scaled)
        return scaled

    def get_state(self) -> dict[str, np.ndarray]:
        """Return everything that the next step depends on."""
        return {
            "sums": self.sums.copy(),
            "previous_discounts": self.previous_discounts.copy(),
            "moments": self._moments.copy(),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `get_state` returned."""
        self.sums = np.array(state["sums"])
        self.previous_discounts = np.array(state["previous_discounts"])
        self._moments = np.array(state["moments"])


@compiled
def _scale(
    rewards: Any,
    discounts: Any,
    dones: Any,
    sums: Any,
    previous_discounts: Any,
    moments: Any,
    scaled: Any,
) -> None:
    """Do what `ReturnNormaliser` does in one step; NumPy would be called ten times for it."""
    for index in range(sums.size):
        sums[index] = rewards[index] + previous_discounts[index] * sums[index]
    _merge_moments(moments, sums)
    scale = math.sqrt(moments[_VARIANCE] + _EPSILON)
    for index in range(sums.size):
        sums[index] = 0.0 if dones[index] else sums[index]
        previous_discounts[index] = discounts[index]
        scaled[index] = rewards[index] / scale


@compiled_part
def _merge_moments(moments: Any, batch: Any) -> None:
    """Merge mean and variance of ``batch`` (Chan, Golub and LeVeque 1979)."""
    count, size = moments[_COUNT], batch.size
    total = count + size
    mean = pairwise_sum(batch) / size
    apart = batch - mean
    variance = pairwise_sum(apart * apart) / size
    delta = mean - moments[_MEAN]
    squares = moments[_VARIANCE] * count + variance * size
    squares += delta * delta * count * size / total
    moments[_MEAN] += delta * size / total
    moments[_VARIANCE] = squares / total
    moments[_COUNT] = total


@compiled
def pairwise_sum(values: Any) -> float:
    """Return the sum of float64 (n,), added in the order of ``np.add.reduce``: the same bits.

    Up to 128 numbers are added in eight lanes, more of them half by half (NumPy,
    ``numpy/_core/src/umath/loops_utils.h.src``).
    """
    if values.size <= _IN_LANES:
        return _sum_in_lanes(values)
    todo, sums = np.empty((_MOST_HALVINGS, 2), np.int64), np.empty(_MOST_HALVINGS)
    todo[0, 0], todo[0, 1] = 0, values.size
    num_todo, num_sums = 1, 0
    while num_todo > 0:
        num_todo -= 1
        start, size = todo[num_todo]
        if size == _ADD:
            num_sums -= 1
            sums[num_sums - 1] += sums[num_sums]
        elif size <= _IN_LANES:
            sums[num_sums] = _sum_in_lanes(values[start : start + size])
            num_sums += 1
        else:
            half = size // 2 // _LANES * _LANES
            todo[num_todo, 1] = _ADD
            todo[num_todo + 1, 0], todo[num_todo + 1, 1] = start + half, size - half
            todo[num_todo + 2, 0], todo[num_todo + 2, 1] = start, half
            num_todo += 3
    return sums[0]


@compiled_part
def _sum_in_lanes(values: Any) -> float:
    in_lanes, total = values.size // _LANES * _LANES, 0.0
    if in_lanes > 0:
        lanes = values[:_LANES].copy()
        for start in range(_LANES, in_lanes, _LANES):
            for lane in range(_LANES):
                lanes[lane] += values[start + lane]
        total = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
        total += (lanes[4] + lanes[5]) + (lanes[6] + lanes[7])
    for index in range(in_lanes, values.size):
        total += values[index]
    return total
