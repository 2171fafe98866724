"""Distributions of token lengths, sampled by inverting them at (correlated) uniforms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sched_env.errors import ConfigError
from sched_env.workload.columns import MAX_TOKENS

FloatArray = npt.NDArray[np.float64]
_erf = np.frompyfunc(math.erf, 1, 1)


def correlated_normals(
    rng: np.random.Generator, rho: float, size: int
) -> tuple[FloatArray, FloatArray]:
    """Draw two standard normal columns with correlation ``rho`` (a Gaussian copula)."""
    first = rng.standard_normal(size)
    other = rng.standard_normal(size)
    return first, rho * first + math.sqrt(max(0.0, 1.0 - rho * rho)) * other


def correlated_uniforms(
    rng: np.random.Generator, rho: float, size: int
) -> tuple[FloatArray, FloatArray]:
    """Draw two columns uniform on [0, 1) whose normal scores have correlation ``rho``."""
    if rho == 0:
        return rng.random(size), rng.random(size)
    first, second = correlated_normals(rng, rho, size)
    return normal_cdf(first), normal_cdf(second)


def normal_cdf(z: FloatArray) -> FloatArray:
    """Return the standard normal distribution function, float64 like ``z``."""
    return 0.5 + 0.5 * np.asarray(_erf(z / math.sqrt(2.0)), dtype=np.float64)


class TokenLengths(ABC):
    """A distribution of token counts >= 1."""

    @abstractmethod
    def at_normal(self, z: FloatArray) -> FloatArray:
        """Return the length at each standard normal score, before rounding."""

    def sample_at(self, z: FloatArray) -> npt.NDArray[np.int32]:
        """Return whole lengths >= 1 at these scores, int32 like ``z``."""
        return np.clip(np.rint(self.at_normal(z)), 1, MAX_TOKENS).astype(np.int32)


@dataclass(frozen=True)
class QuantileLengths(TokenLengths):
    """Lengths from a quantile table, linear between its points.

    Attributes:
        pct: percentages, increasing from 0 to 100.
        tokens: length at each percentage, not decreasing.
    """

    pct: Sequence[float]
    tokens: Sequence[float]

    def __post_init__(self) -> None:
        """Check the table.

        Raises:
            ConfigError: unequal lengths, wrong ends, or decreasing values.
        """
        rising = all(a < b for a, b in zip(self.pct, self.pct[1:], strict=False))
        sorted_tokens = all(a <= b for a, b in zip(self.tokens, self.tokens[1:], strict=False))
        if len(self.pct) != len(self.tokens) or len(self.pct) < 2:
            raise ConfigError("a quantile table needs as many tokens as pct, at least 2")
        if self.pct[0] != 0 or self.pct[-1] != 100 or not rising or not sorted_tokens:
            raise ConfigError("a quantile table runs from pct 0 to 100, with rising pct and tokens")
        if self.tokens[0] < 1:
            raise ConfigError("a quantile table needs tokens >= 1")

    def at_normal(self, z: FloatArray) -> FloatArray:
        """Return the interpolated quantile."""
        return np.interp(100.0 * normal_cdf(z), self.pct, self.tokens)


@dataclass(frozen=True)
class LogNormalLengths(TokenLengths):
    """Log-normal lengths.

    Attributes:
        mean_tokens: mean length.
        cv: coefficient of variation; 0 = all equal.
        max_tokens: longer draws are cut to this.
    """

    mean_tokens: float
    cv: float
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: a mean below 1, or a negative or infinite spread.
        """
        if not 1 <= self.mean_tokens <= MAX_TOKENS:
            raise ConfigError(f"mean_tokens {self.mean_tokens} must lie in 1..{MAX_TOKENS}")
        if not 0 <= self.cv <= 100:
            raise ConfigError(f"cv {self.cv} of token lengths must lie in 0..100")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens {self.max_tokens} must be >= 1")

    def at_normal(self, z: FloatArray) -> FloatArray:
        """Return exp(mu + sigma z), cut to ``max_tokens``."""
        variance = math.log1p(self.cv**2)
        with np.errstate(over="ignore"):
            lengths = self.mean_tokens * np.exp(math.sqrt(variance) * z - 0.5 * variance)
        return np.minimum(lengths, self.max_tokens)
