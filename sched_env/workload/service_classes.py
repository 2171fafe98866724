"""Service classes: how urgent and how valuable a request is, drawn per seed.

A class has a share of the traffic, a weight in goodput, and two objectives: time to first token
(TTFT) and time per output token (TPOT). The TTFT objective of a request is its class's, times a
jitter of U(0.75, 1.5), plus twice its own prefill time when alone; the last term is the server's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sched_env.compiled import compiled
from sched_env.config.service import DEFAULT_SERVICE_CLASSES
from sched_env.errors import ConfigError
from sched_env.workload.counter_rng import (
    CLASS_STREAM,
    LENGTH_PREDICTION_STREAM,
    SLO_JITTER_STREAM,
    normal,
    uniform,
)

SERVICE_CLASS = np.dtype(
    [("share", "f8"), ("weight", "f8"), ("ttft_slo_s", "f8"), ("tpot_slo_s", "f8")], align=True
)
"""One service class: share of requests, weight in goodput, TTFT and TPOT objectives in seconds."""

DEFAULT_SERVICE_CLASS_NAMES = tuple(one.name for one in DEFAULT_SERVICE_CLASSES)
"""What the classes of an environment are called unless it says so itself."""

MAX_NUM_SERVICE_CLASSES = 127


class ServiceClassLike(Protocol):
    """Anything with the four figures of a service class, such as the configuration's model."""

    @property
    def share(self) -> float:
        """Return the share of requests."""
        ...

    @property
    def weight(self) -> float:
        """Return the weight in goodput."""
        ...

    @property
    def ttft_slo_s(self) -> float:
        """Return the objective for the time to first token, in seconds."""
        ...

    @property
    def tpot_slo_s(self) -> float:
        """Return the objective for the time per output token, in seconds."""
        ...


def service_class_array(classes: Iterable[ServiceClassLike]) -> npt.NDArray[np.void]:
    """Return ``classes`` as a ``SERVICE_CLASS`` array (n,), as the compiled core takes them.

    Raises:
        ConfigError: no class, too many, a share below 0, all shares 0, or an objective <= 0.
    """
    rows = [(c.share, c.weight, c.ttft_slo_s, c.tpot_slo_s) for c in classes]
    if not 1 <= len(rows) <= MAX_NUM_SERVICE_CLASSES:
        message = f"{len(rows)} service classes given; give 1 to {MAX_NUM_SERVICE_CLASSES}"
        raise ConfigError(message)
    for index, (share, weight, ttft_slo_s, tpot_slo_s) in enumerate(rows):
        for name, value in (("share", share), ("weight", weight)):
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"service class {index}: {name} {value} must be finite and >= 0")
        for name, value in (("ttft_slo_s", ttft_slo_s), ("tpot_slo_s", tpot_slo_s)):
            if not value > 0:
                raise ConfigError(f"service class {index}: {name} {value} must be > 0 seconds")
    if not sum(row[0] for row in rows) > 0:
        raise ConfigError("the shares of the service classes are all 0; give one a share > 0")
    return np.array(rows, dtype=SERVICE_CLASS)


@compiled
def draw_class(classes: npt.NDArray[np.void], seed: int, row: int) -> int:
    """Draw the index of the service class of request ``row``, in proportion to the shares."""
    total = 0.0
    for index in range(len(classes)):
        total += classes[index]["share"]
    target = uniform(seed, row, CLASS_STREAM) * total
    cumulative = 0.0
    for index in range(len(classes)):
        cumulative += classes[index]["share"]
        if target < cumulative:
            return index
    return len(classes) - 1


@compiled
def draw_slo_jitter(seed: int, row: int) -> float:
    """Draw the factor U(0.75, 1.5) on the TTFT objective of request ``row``."""
    return 0.75 + 0.75 * uniform(seed, row, SLO_JITTER_STREAM)


@compiled
def draw_predicted_tokens(output_tokens: int, sigma: float, seed: int, row: int) -> float:
    """Draw a noisy prediction of the output length: log-normal with mean ``output_tokens``.

    ``max(1, output_tokens * exp(sigma * z - sigma^2 / 2))`` with z standard normal; ``sigma`` 0
    is an oracle.
    """
    noise = normal(seed, row, LENGTH_PREDICTION_STREAM)
    return max(1.0, output_tokens * math.exp(sigma * noise - 0.5 * sigma * sigma))
