"""Running scale of discounted returns, by which rewards are divided.

A backward sum ``R_k = r_k + discount_{k-1} R_{k-1}`` is kept per environment, where
``discount_k = exp(-dt_k / tau)`` belongs to the time between decisions k and k+1; rewards are
divided by the running standard deviation of R (Engstrom et al. 2020, "Implementation matters in
deep policy gradients", with a discount per decision in place of a constant one).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

_EPSILON = 1e-8


class ReturnNormaliser:
    """Divide rewards by the running standard deviation of the discounted return."""

    def __init__(self, num_envs: int) -> None:
        """Start with no observation: mean 0, variance 1, weight 1e-4."""
        self.sums = np.zeros(num_envs)
        self.previous_discounts = np.ones(num_envs)
        self.mean = 0.0
        self.variance = 1.0
        self.count = 1e-4

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
        self.sums = rewards + self.previous_discounts * self.sums
        self._update_moments(self.sums)
        self.sums[dones] = 0.0
        self.previous_discounts = np.array(discounts, dtype=np.float64)
        return (rewards / self.scale).astype(np.float32)

    def _update_moments(self, batch: np.ndarray) -> None:
        """Merge mean and variance of ``batch`` (Chan, Golub and LeVeque 1979)."""
        size = batch.size
        total = self.count + size
        mean = np.add.reduce(batch) / size  # what batch.mean() does, without its questions
        apart = batch - mean
        variance = np.add.reduce(apart * apart) / size
        delta = float(mean) - self.mean
        squares = self.variance * self.count + float(variance) * size
        squares += delta * delta * self.count * size / total
        self.mean += delta * size / total
        self.variance = squares / total
        self.count = total

    def get_state(self) -> dict[str, np.ndarray]:
        """Return everything that the next step depends on."""
        moments = np.array([self.mean, self.variance, self.count])
        return {
            "sums": self.sums.copy(),
            "previous_discounts": self.previous_discounts.copy(),
            "moments": moments,
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `get_state` returned."""
        self.sums = np.array(state["sums"])
        self.previous_discounts = np.array(state["previous_discounts"])
        self.mean, self.variance, self.count = (float(value) for value in state["moments"])
