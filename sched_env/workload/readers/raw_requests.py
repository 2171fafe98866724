"""What a format's reader hands over: rows as the file has them, on the file's own clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sched_env.errors import ConfigError
from sched_env.workload.arrivals import ArrivalProcess
from sched_env.workload.hash_ids import HashIds
from sched_env.workload.service_classes import DEFAULT_SERVICE_CLASS_NAMES

TICKS_PER_S: Mapping[str, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Ticks per second of each time unit a caller may name."""


@dataclass(frozen=True)
class ReadOptions:
    """How a trace is read; every field has a default that alters nothing but failed rows.

    Attributes:
        seed: seed of everything drawn while reading.
        zero_tokens: rows without prompt or output (failures): ``drop`` them, ``keep_failed``
            (marked in ``RequestTable.failed``, zeros become 1), or ``refuse`` the file.
        max_model_len: longest prompt + output in tokens; ``None`` = no limit.
        too_long: ``reject`` longer rows, or ``clip`` them: the output is
            cut to what the prompt leaves, at least 1, and the prompt to all but that 1.
        spread_resolution: spread arrivals of one clock tick evenly at random inside it.
        resolution_s: the clock tick in seconds; ``None`` = the format's, or as measured.
        arrival: draw the arrivals from this process in place of the file's.
        time_unit: unit of numeric time stamps, in place of the format's own.
        block_tokens: tokens per prefix block, in place of the format's own.
        window_s: (start, end): only arrivals in this part, in seconds from the first arrival
            (ServeGen: of the clock of its windows).
        length_correlation: ServeGen only: correlation of prompt and output length (Gaussian
            copula).
        service_class_names: names that a ``service_class`` column may use.
    """

    seed: int = 0
    zero_tokens: Literal["drop", "keep_failed", "refuse"] = "drop"
    max_model_len: int | None = None
    too_long: Literal["reject", "clip"] = "reject"
    spread_resolution: bool = False
    resolution_s: float | None = None
    arrival: ArrivalProcess | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    block_tokens: int | None = None
    window_s: tuple[float, float] | None = None
    length_correlation: float = 0.0
    service_class_names: tuple[str, ...] = DEFAULT_SERVICE_CLASS_NAMES

    def __post_init__(self) -> None:
        """Check every choice.

        Raises:
            ConfigError: naming the option, what was given and what is allowed.
        """
        _one_of("zero_tokens", self.zero_tokens, ("drop", "keep_failed", "refuse"))
        _one_of("too_long", self.too_long, ("reject", "clip"))
        if self.time_unit is not None:
            _one_of("time_unit", self.time_unit, tuple(TICKS_PER_S))
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ConfigError(f"max_model_len {self.max_model_len} must be >= 2 (prompt + output)")
        if self.block_tokens is not None and self.block_tokens < 1:
            raise ConfigError(f"block_tokens {self.block_tokens} must be >= 1")
        if self.resolution_s is not None and not 0 < self.resolution_s < 1e9:
            raise ConfigError(f"resolution_s {self.resolution_s} must be a number of seconds > 0")
        if not -1.0 <= self.length_correlation <= 1.0:
            raise ConfigError(f"length_correlation {self.length_correlation} must lie in -1..1")
        if self.window_s is not None and not 0 <= self.window_s[0] < self.window_s[1]:
            raise ConfigError(
                f"window_s {self.window_s} must be (start, end) with 0 <= start < end"
            )
        if self.seed < 0:
            raise ConfigError(f"seed {self.seed} must be >= 0")

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator for one purpose; purposes do not disturb each other."""
        return np.random.default_rng([self.seed, purpose])


SPREAD_PURPOSE, ARRIVAL_PURPOSE, SERVEGEN_PURPOSE = 1, 2, 3


def _one_of(option: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ConfigError(f"{option} {given!r} is not one of {', '.join(allowed)}")


@dataclass(frozen=True)
class RawRequests:
    """Rows in file order, before anything is dropped or sorted.

    Attributes:
        format: name of the format.
        arrival: int64 or float64 (n,), time stamps in ticks; ``None`` = the file has none.
        ticks_per_s: ticks of the file's clock per second.
        resolution_s: known coarseness of the clock in seconds, 0 = not known to be coarse.
        prompt_tokens: int64 (n,), >= 0.
        output_tokens: int64 (n,), >= 0.
        columns: further columns of ``RequestTable`` by name, each (n,).
        hash_ids: prefix block ids.
        notes: sentences for the report.
    """

    format: str
    arrival: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None
    ticks_per_s: float
    resolution_s: float
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    hash_ids: HashIds | None = None
    notes: tuple[str, ...] = ()
