"""An arena: which policies meet under which conditions."""

from __future__ import annotations

import itertools
from typing import ClassVar, Self

import pydantic

from sched_env.config.env import EnvConfig, Names, Split
from sched_env.config.label import Label
from sched_env.config.model import (
    ConfigModel,
    Count,
    CountOrZero,
    Flag,
    Positive,
    Seed,
    SloFactor,
    Text,
)


def condition_name(kv_pool: str, slo: str) -> str:
    """Return what the folder of one KV pool under one SLO tightness is called, by their labels."""
    return f"{kv_pool}_kv_{slo}_slo"


class BurstsConfig(ConfigModel):
    """A synthetic trace whose arrivals come in bursts."""

    workload: Text = "chatbot"
    """Embedded workload whose lengths and rate it has."""

    burst_cv: Positive = 4.0
    """Coefficient of variation of the intervals between arrivals; 1 is a Poisson process."""

    num_requests: Count = 6000
    """Requests of the whole trace, which is split by time like any other."""

    seed: Seed = 0
    """Draws the trace."""


class CeilingsConfig(ConfigModel):
    """How the ceilings are looked for."""

    enabled: Flag = True
    """Whether to compute the fluid bound and the search in hindsight (needs the extra ceilings)."""

    num_seeds: Count = 2
    """Seeds on which they are computed, the first ones of the comparison."""

    hindsight_runs: Count = 100
    """Runs of each search in hindsight, and again of its luck control."""

    bin_s: Positive = 1.0
    """Time bins of the fluid bound [s]."""


class ArenaConfig(ConfigModel):
    """Policies x traces x loads x KV pools x SLO tightness x seeds."""

    config_kind: ClassVar[str | None] = "arena"

    name: Label
    """What the report and, without --out, its folder are called."""

    env: EnvConfig = EnvConfig()
    """Server and clients; num_blocks and slo_factor are set by the conditions."""

    policies: Names
    """Heuristics, policy folders or run folders; label=NAME chooses the name in tables."""

    clairvoyant: Flag = True
    """Run weighted SRPT with true lengths beside them, as a ceiling."""

    traces: dict[Label, Text] = pydantic.Field(default={})
    """Trace files or embedded workloads, by the label in tables."""

    bursts: dict[Label, BurstsConfig] = pydantic.Field(default={})
    """Synthetic traces with bursts, by the label in tables."""

    loads: tuple[Positive, ...] = pydantic.Field(
        default=(0.3, 0.6, 0.8, 1.0, 1.3, 1.6), min_length=1
    )
    """Arrival rates over what fcfs can drain."""

    kv_pools: dict[Label, Count] = pydantic.Field(
        default={"ample": 16000, "scarce": 4000}, min_length=1
    )
    """KV pools in blocks, by label."""

    slo_factors: dict[Label, SloFactor] = pydantic.Field(
        default={"normal": 1.0, "tight": 0.7}, min_length=1
    )
    """Multiples of every SLO, by label."""

    num_seeds: Count = 20
    """Paired seeds in each cell."""

    split: Split = "test"
    """Part of each trace by time."""

    max_requests: CountOrZero = 1000
    """Requests of the window that are run, from its start; 0: all."""

    tie_within: Positive = 0.01
    """Where the best and the worst differ by less than this, the regime map names no winner."""

    ceilings: CeilingsConfig = CeilingsConfig()
    """The fluid bound and the search in hindsight."""

    @pydantic.model_validator(mode="after")
    def _check_traces(self) -> Self:
        if not self.traces and not self.bursts:
            raise ValueError("no traces: give some under traces or bursts")
        doubled = sorted(set(self.traces) & set(self.bursts))
        if doubled:
            raise ValueError(f"{doubled[0]!r} is under traces and under bursts; rename one")
        return self

    @pydantic.model_validator(mode="after")
    def _check_conditions(self) -> Self:
        found: dict[str, tuple[str, str]] = {}
        for labels in itertools.product(self.kv_pools, self.slo_factors):
            name = condition_name(*labels)
            other = found.setdefault(name.casefold(), labels)  # some file systems know no case
            if other != labels:
                raise ValueError(
                    f"the KV pools and SLO factors {other} and {labels} would share the folder "
                    f"{name}; rename one of the labels"
                )
        return self
