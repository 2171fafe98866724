"""Arrival processes whose rate wanders or falls silent, as fitted to real traces."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sched_env.workload.arrivals import (
    ArrivalProcess,
    FloatArray,
    RatePath,
    positive,
    unit_gamma_gaps,
)

_STEPS_PER_TAU = 10


@dataclass(frozen=True)
class LogAr1:
    """A slow factor exp(x) on the rate, of mean 1; x is a stationary Ornstein-Uhlenbeck path.

    Attributes:
        sigma: standard deviation of x.
        tau_s: correlation time in seconds.
    """

    sigma: float
    tau_s: float

    def sample(self, rng: np.random.Generator, num_steps: int, step_s: float) -> FloatArray:
        """Draw the factor on a grid of ``step_s`` seconds, float64 (num_steps,)."""
        keep = math.exp(-step_s / self.tau_s)
        noise = rng.standard_normal(num_steps) * self.sigma
        noise[1:] *= math.sqrt(1.0 - keep * keep)
        path = noise.tolist()
        for index in range(1, num_steps):
            path[index] += keep * path[index - 1]
        return np.exp(np.array(path) - 0.5 * self.sigma**2)


@dataclass(frozen=True)
class CoxGammaArrivals(ArrivalProcess):
    """Gamma gaps under a rate that wanders as a product of ``LogAr1`` factors.

    Attributes:
        rate_rps: mean rate in requests per second.
        gamma_shape: shape of the gaps in operational time.
        factors: slow factors on the rate.
    """

    rate_rps: float
    gamma_shape: float
    factors: tuple[LogAr1, ...]

    def __post_init__(self) -> None:
        """Check the figures."""
        positive("rate_rps", self.rate_rps)
        positive("gamma_shape", self.gamma_shape)

    @property
    def mean_rate_rps(self) -> float:
        """Return the mean rate."""
        return self.rate_rps

    def _unit_gaps(self, rng: np.random.Generator, size: int) -> FloatArray:
        return unit_gamma_gaps(rng, self.gamma_shape, size)

    def _rate_path(self, rng: np.random.Generator, duration_s: float) -> RatePath:
        step_s = min((factor.tau_s for factor in self.factors), default=duration_s) / _STEPS_PER_TAU
        num_steps = math.ceil(duration_s / step_s)
        rates = np.full(num_steps, self.rate_rps)
        for factor in self.factors:
            rates *= factor.sample(rng, num_steps, step_s)
        return RatePath(np.arange(num_steps + 1, dtype=np.float64) * step_s, rates)


@dataclass(frozen=True)
class OnOffArrivals(ArrivalProcess):
    """Bursts and silences: exponential on-times, off-times of a minimum plus a Weibull.

    Attributes:
        on_mean_s: mean length of a burst in seconds.
        off_min_s: shortest silence in seconds.
        off_shape: Weibull shape of the rest of the silence.
        off_scale_s: Weibull scale of the rest of the silence, in seconds.
        on_rate_rps: mean rate inside bursts.
        on_rate_cv: coefficient of variation of that rate between bursts (log-normal).
        within: wandering of the rate inside a burst.
        gamma_shape: shape of the gaps in operational time.
    """

    on_mean_s: float
    off_min_s: float
    off_shape: float
    off_scale_s: float
    on_rate_rps: float
    on_rate_cv: float
    within: LogAr1
    gamma_shape: float

    @property
    def mean_rate_rps(self) -> float:
        """Return the rate inside bursts times the mean share of time in bursts."""
        off_mean_s = self.off_min_s + self.off_scale_s * math.gamma(1.0 + 1.0 / self.off_shape)
        return self.on_rate_rps * self.on_mean_s / (self.on_mean_s + off_mean_s)

    def _unit_gaps(self, rng: np.random.Generator, size: int) -> FloatArray:
        return unit_gamma_gaps(rng, self.gamma_shape, size)

    def _rate_path(self, rng: np.random.Generator, duration_s: float) -> RatePath:
        step_s = self.within.tau_s / _STEPS_PER_TAU
        sigma = math.sqrt(math.log1p(self.on_rate_cv**2))
        steps: list[FloatArray] = []
        rates: list[FloatArray] = []
        covered_s = 0.0
        while covered_s < duration_s:
            on_s = rng.exponential(self.on_mean_s)
            off_s = self.off_min_s + self.off_scale_s * rng.weibull(self.off_shape)
            num_steps = max(1, math.ceil(on_s / step_s))
            level = math.exp(sigma * rng.standard_normal() - 0.5 * sigma**2)
            inside = self.within.sample(rng, num_steps, step_s)
            steps += [np.full(num_steps, on_s / num_steps), np.array([off_s])]
            rates += [self.on_rate_rps * level * inside, np.zeros(1)]
            covered_s += on_s + off_s
        edges_s = np.concatenate(([0.0], np.cumsum(np.concatenate(steps))))
        return RatePath(edges_s, np.concatenate(rates))
