"""Arrival processes: when requests arrive, as renewals of a clock that runs with the rate.

Gaps of unit mean are drawn in operational time (expected number of arrivals so far); a rate path
turns them into seconds. A constant path gives Poisson, Gamma and Weibull renewals, a wandering one
a Cox process, one with silences an on-off process.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sched_env.errors import ConfigError, UnknownNameError

FloatArray = npt.NDArray[np.float64]
LATEST_S = 1e12
"""Arrivals that take longer than this, some 30,000 years, are refused (a wrong unit as well)."""

MAX_NUM_ARRIVALS = 50_000_000
"""More arrivals than this in one draw are refused (a wrong unit, as a rule)."""


@dataclass(frozen=True)
class RatePath:
    """A piecewise-constant rate.

    Attributes:
        edges_s: float64 (m + 1,), increasing from 0.
        rates_rps: float64 (m,), >= 0, requests per second between neighbouring edges.
    """

    edges_s: FloatArray
    rates_rps: FloatArray

    def expected(self) -> FloatArray:
        """Return the expected number of arrivals up to each edge, float64 (m + 1,)."""
        return np.concatenate(([0.0], np.cumsum(self.rates_rps * np.diff(self.edges_s))))


class ArrivalProcess(ABC):
    """A source of arrival times; ``rate_rps`` is its mean rate in requests per second."""

    @property
    @abstractmethod
    def mean_rate_rps(self) -> float:
        """Return the long-run mean rate in requests per second."""

    @abstractmethod
    def _unit_gaps(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw ``size`` gaps of mean 1 in operational time."""

    def _rate_path(self, rng: np.random.Generator, duration_s: float) -> RatePath:
        """Draw a rate path that covers at least ``duration_s`` seconds."""
        del rng
        return RatePath(np.array([0.0, duration_s]), np.array([self.mean_rate_rps]))

    def sample(
        self,
        rng: np.random.Generator,
        *,
        num_requests: int | None = None,
        duration_s: float | None = None,
    ) -> FloatArray:
        """Draw arrival times in seconds, sorted, float64 (n,).

        Give ``num_requests`` for that many arrivals, or ``duration_s`` for all arrivals before
        that time (perhaps none).

        Raises:
            ConfigError: both or neither given, a value that is not above 0, or arrivals that would
                come later than `LATEST_S`.
        """
        if (num_requests is None) == (duration_s is None):
            raise ConfigError("give either num_requests or duration_s of an arrival process")
        if num_requests is not None:
            if _positive_count(num_requests) > LATEST_S * self.mean_rate_rps:
                raise ConfigError(
                    f"{num_requests} requests at {self.mean_rate_rps:g} requests/s take more than "
                    f"{LATEST_S:g} s: give a higher rate"
                )
            return self._sample_number(rng, num_requests)
        horizon = positive("duration_s", duration_s or 0.0)
        if horizon > LATEST_S:
            raise ConfigError(f"duration_s {horizon:g} is not possible: give {LATEST_S:g} at most")
        _positive_count(max(1, math.ceil(min(horizon * self.mean_rate_rps, 1e18))))
        path = self._rate_path(rng, horizon)
        expected = path.expected()
        times = np.interp(self._renewals(rng, float(expected[-1])), expected, path.edges_s)
        return times[times < horizon]

    def _sample_number(self, rng: np.random.Generator, num_requests: int) -> FloatArray:
        renewals = np.cumsum(self._unit_gaps(rng, num_requests))
        horizon = 1.2 * num_requests / self.mean_rate_rps + 60.0
        while True:
            path = self._rate_path(rng, horizon)
            expected = path.expected()
            if expected[-1] >= renewals[-1]:
                return np.interp(renewals, expected, path.edges_s)
            horizon *= 2.0

    def _renewals(self, rng: np.random.Generator, until: float) -> FloatArray:
        """Draw the renewal times up to ``until`` in operational time."""
        parts: list[FloatArray] = []
        last = 0.0
        while last <= until:
            size = int((until - last) * 1.05) + 64
            part = last + np.cumsum(self._unit_gaps(rng, size))
            parts.append(part)
            last = float(part[-1])
        renewals = np.concatenate(parts)
        return renewals[renewals <= until]


@dataclass(frozen=True)
class PoissonArrivals(ArrivalProcess):
    """Independent arrivals: exponential gaps, coefficient of variation 1."""

    rate_rps: float

    def __post_init__(self) -> None:
        """Check the rate."""
        positive("rate_rps", self.rate_rps)

    @property
    def mean_rate_rps(self) -> float:
        """Return the rate."""
        return self.rate_rps

    def _unit_gaps(self, rng: np.random.Generator, size: int) -> FloatArray:
        return rng.standard_exponential(size)


@dataclass(frozen=True)
class GammaArrivals(ArrivalProcess):
    """Gamma gaps with coefficient of variation ``cv`` (> 1: bursts; shape = 1 / cv^2)."""

    rate_rps: float
    cv: float

    def __post_init__(self) -> None:
        """Check both figures."""
        positive("rate_rps", self.rate_rps)
        bounded_cv(self.cv)

    @property
    def mean_rate_rps(self) -> float:
        """Return the rate."""
        return self.rate_rps

    def _unit_gaps(self, rng: np.random.Generator, size: int) -> FloatArray:
        return unit_gamma_gaps(rng, 1.0 / self.cv**2, size)


@dataclass(frozen=True)
class WeibullArrivals(ArrivalProcess):
    """Weibull gaps of the given shape (< 1: bursts)."""

    rate_rps: float
    shape: float

    def __post_init__(self) -> None:
        """Check both figures."""
        positive("rate_rps", self.rate_rps)
        if not 0.1 <= self.shape <= 100.0:
            raise ConfigError(f"shape {self.shape} of a Weibull gap must lie in 0.1..100")

    @classmethod
    def with_cv(cls, rate_rps: float, cv: float) -> WeibullArrivals:
        """Return the process whose gaps have this coefficient of variation, by bisection."""
        bounded_cv(cv)
        low, high = 0.1, 100.0
        for _ in range(80):
            middle = math.sqrt(low * high)
            ratio = math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle)
            low, high = (middle, high) if math.exp(ratio) - 1 > cv**2 else (low, middle)
        return cls(rate_rps, math.sqrt(low * high))

    @property
    def mean_rate_rps(self) -> float:
        """Return the rate."""
        return self.rate_rps

    def _unit_gaps(self, rng: np.random.Generator, size: int) -> FloatArray:
        return unit_weibull_gaps(rng, self.shape, size)


def unit_gamma_gaps(rng: np.random.Generator, shape: float, size: int) -> FloatArray:
    """Draw gamma gaps of mean 1."""
    return rng.standard_gamma(shape, size) / shape


def unit_weibull_gaps(rng: np.random.Generator, shape: float, size: int) -> FloatArray:
    """Draw Weibull gaps of mean 1."""
    return rng.weibull(shape, size) / math.gamma(1.0 + 1.0 / shape)


def arrival_process(kind: str, rate_rps: float, cv: float | None = None) -> ArrivalProcess:
    """Return the process named ``poisson``, ``gamma`` or ``weibull`` at this mean rate.

    Args:
        kind: name of the process.
        rate_rps: mean rate in requests per second.
        cv: coefficient of variation of the gaps; needed by gamma and weibull.

    Raises:
        UnknownNameError: no such process.
        ConfigError: a figure is missing, not wanted, or out of range.
    """
    if kind not in ("poisson", "gamma", "weibull"):
        raise UnknownNameError("arrival process", kind, ("poisson", "gamma", "weibull"))
    if kind == "poisson":
        if cv is not None and cv != 1.0:
            raise ConfigError(f"poisson arrivals have cv 1, not {cv}; use gamma or weibull")
        return PoissonArrivals(rate_rps)
    if cv is None:
        raise ConfigError(f"{kind} arrivals need cv, the coefficient of variation of the gaps")
    return GammaArrivals(rate_rps, cv) if kind == "gamma" else WeibullArrivals.with_cv(rate_rps, cv)


def positive(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number above 0.

    Raises:
        ConfigError: it is not.
    """
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} {value} must be a finite number > 0")
    return float(value)


def bounded_cv(cv: float) -> float:
    """Return ``cv`` if gaps with this coefficient of variation can be drawn.

    Raises:
        ConfigError: outside 0.02..20.
    """
    if not 0.02 <= cv <= 20.0:
        raise ConfigError(f"cv {cv} of arrival gaps must lie in 0.02..20")
    return cv


def _positive_count(num_requests: int) -> int:
    if not 1 <= num_requests <= MAX_NUM_ARRIVALS:
        message = f"{num_requests} arrivals asked for; give 1 to {MAX_NUM_ARRIVALS}"
        raise ConfigError(f"{message} (a smaller duration or rate)")
    return num_requests
