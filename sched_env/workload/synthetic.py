"""Embedded workloads: lengths and arrivals fitted to public traces, drawn from a seed.

``azure_conv`` and ``azure_code`` follow the Azure LLM inference trace of 2023 (Microsoft,
CC-BY-4.0), ``mooncake_conv`` the lengths of the Mooncake conversation trace (Apache-2.0);
``chatbot`` is a plain Poisson workload with log-normal lengths, to be changed at will. Lengths
come from quantile tables, coupled by a Gaussian copula; the figures are in
``workload_figures.json``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from sched_env.errors import ConfigError, UnknownNameError
from sched_env.workload.arrivals import (
    LATEST_S,
    ArrivalProcess,
    FloatArray,
    GammaArrivals,
    PoissonArrivals,
    positive,
)
from sched_env.workload.bursty_arrivals import CoxGammaArrivals, LogAr1, OnOffArrivals
from sched_env.workload.lengths import (
    LogNormalLengths,
    QuantileLengths,
    TokenLengths,
    correlated_normals,
)
from sched_env.workload.source import TraceSource
from sched_env.workload.table import RequestTable

WORKLOADS = ("azure_conv", "azure_code", "mooncake_conv", "chatbot")
"""Names of the embedded workloads."""


@dataclass(frozen=True)
class Workload:
    """A recipe for requests.

    Attributes:
        name: short name for reports.
        prompt: distribution of prompt tokens.
        output: distribution of output tokens.
        arrival: arrival process at its natural mean rate.
        rho: correlation of the normal scores of prompt and output length.
        source: where the figures come from.
    """

    name: str
    prompt: TokenLengths
    output: TokenLengths
    arrival: ArrivalProcess
    rho: float = 0.0
    source: str = "chosen by hand"

    def __post_init__(self) -> None:
        """Check the correlation."""
        if not -1.0 <= self.rho <= 1.0:
            raise ConfigError(f"rho {self.rho} of workload {self.name} must lie in -1..1")


def workload(name: str) -> Workload:
    """Return an embedded workload by name.

    Raises:
        UnknownNameError: no such workload.
    """
    if name not in WORKLOADS:
        raise UnknownNameError("workload", name, WORKLOADS)
    if name == "chatbot":
        prompt, output = LogNormalLengths(512.0, 1.0, 8192), LogNormalLengths(256.0, 1.0, 2048)
        return Workload(name, prompt, output, PoissonArrivals(4.0))
    figures = _figures()
    fitted = figures["workloads"][name]
    return Workload(
        name=name,
        prompt=QuantileLengths(figures["pct"], fitted["prompt_tokens"]),
        output=QuantileLengths(figures["pct"], fitted["output_tokens"]),
        arrival=_arrival(fitted["arrival"]),
        rho=fitted["gaussian_copula_rho"],
        source=fitted["source"],
    )


def synthesize(
    recipe: str | Workload,
    *,
    num_requests: int | None = None,
    duration_s: float | None = None,
    rate_rps: float | None = None,
    seed: int = 0,
    burst_cv: float | None = None,
    arrival: ArrivalProcess | None = None,
) -> RequestTable:
    """Draw a request table; the same arguments give the same bytes.

    Args:
        recipe: an embedded workload's name, or a ``Workload``.
        num_requests: draw this many requests; or give ``duration_s``.
        duration_s: draw all requests that arrive within this time.
        rate_rps: mean rate in requests per second; intervals are scaled from the natural rate.
        seed: seed of lengths and arrivals.
        burst_cv: use Gamma gaps of this coefficient of variation at the mean rate, in place of
            the workload's own arrivals.
        arrival: use this process in place of the workload's own arrivals.

    Raises:
        UnknownNameError: no such workload.
        ConfigError: a figure is out of range, two choices exclude each other, or nothing arrives.
    """
    chosen = workload(recipe) if isinstance(recipe, str) else recipe
    if seed < 0:
        raise ConfigError(f"seed {seed} must be >= 0")
    chosen = _with_arrivals(chosen, burst_cv, arrival)
    times = _arrival_times(chosen, num_requests, duration_s, rate_rps, seed)
    z_prompt, z_output = correlated_normals(
        np.random.default_rng([seed, 1]), chosen.rho, len(times)
    )
    notes = (f"drawn with seed {seed}", f"figures: {chosen.source}")
    return RequestTable.from_columns(
        arrival_time_s=times - times[0],
        prompt_tokens=chosen.prompt.sample_at(z_prompt),
        output_tokens=chosen.output.sample_at(z_output),
        source=TraceSource(name=chosen.name, format="synthetic", notes=notes),
    )


def _with_arrivals(
    chosen: Workload, burst_cv: float | None, arrival: ArrivalProcess | None
) -> Workload:
    """Return the workload with its arrivals replaced, if anything replaces them."""
    if burst_cv is not None and arrival is not None:
        raise ConfigError("give burst_cv or arrival, not both: each replaces the arrivals")
    if burst_cv is not None:
        arrival = GammaArrivals(chosen.arrival.mean_rate_rps, burst_cv)
    return chosen if arrival is None else dataclasses.replace(chosen, arrival=arrival)


def _arrival_times(
    chosen: Workload,
    num_requests: int | None,
    duration_s: float | None,
    rate_rps: float | None,
    seed: int,
) -> FloatArray:
    """Draw arrivals at the natural rate, then scale the intervals to the wanted one."""
    natural = chosen.arrival.mean_rate_rps
    speed = 1.0 if rate_rps is None else positive("rate_rps", rate_rps) / natural
    rng = np.random.default_rng([seed, 0])
    natural_s = None if duration_s is None else positive("duration_s", duration_s) * speed
    times = chosen.arrival.sample(rng, num_requests=num_requests, duration_s=natural_s) / speed
    if not len(times):
        raise ConfigError(
            f"workload {chosen.name}: nothing arrives within {duration_s:g} s at seed {seed}; "
            "give a longer duration_s or num_requests"
        )
    if times[-1] > LATEST_S:
        raise ConfigError(
            f"workload {chosen.name}: arrivals up to {times[-1]:g} s; give a higher rate_rps"
        )
    return times


@functools.cache
def _figures() -> Mapping[str, Any]:
    file = resources.files("sched_env.workload").joinpath("workload_figures.json")
    return json.loads(file.read_text(encoding="utf-8"))


def _arrival(figures: Mapping[str, Any]) -> ArrivalProcess:
    parameters = {key: value for key, value in figures.items() if key != "kind"}
    if figures["kind"] == "cox_gamma":
        factors = tuple(LogAr1(**factor) for factor in parameters.pop("factors"))
        return CoxGammaArrivals(factors=factors, **parameters)
    return OnOffArrivals(within=LogAr1(**parameters.pop("within")), **parameters)
