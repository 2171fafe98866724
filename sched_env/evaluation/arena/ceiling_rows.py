"""The ceilings of each cell of an arena, beside the best opponent there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sched_env.config import EnvConfig
from sched_env.config.arena import ArenaConfig
from sched_env.errors import ConfigError
from sched_env.evaluation.ceilings.fluid_bound import check_size, fluid_bound
from sched_env.evaluation.ceilings.hindsight import hindsight
from sched_env.evaluation.cell import CellRunner, Setting
from sched_env.evaluation.entries import CLAIRVOYANT, TraceLike, policy_entries, trace_entries
from sched_env.metrics.fairness import STARVATION_S
from sched_env.metrics.summary import Row
from sched_env.simulator.simulate import at_load, simulate
from sched_env.workload import RequestTable

_AT_ONCE_S = 1e-9
"""A run that ends here has drawn its clients, and served nobody."""


@dataclass(frozen=True)
class CeilingRow:
    """One cell: weighted goodput of the best opponent and of what lies above it.

    Attributes:
        kv_pool: Label of the KV pool.
        slo: Label of the SLO tightness.
        trace: Label of the trace.
        load: Arrival rate over what fcfs can drain.
        seed: Seed of the clients.
        opponent: The policy with the best mean at this trace and load under this condition.
        achieved: Its weighted goodput in this cell.
        hindsight_start: The same policy, told true output lengths.
        hindsight: What a search in hindsight made of it.
        luck: The best of as many runs with random levers.
        fluid_bound: No schedule exceeds it.
    """

    kv_pool: str
    slo: str
    trace: str
    load: float
    seed: int
    opponent: str
    achieved: float
    hindsight_start: float
    hindsight: float
    luck: float
    fluid_bound: float


class _Place(NamedTuple):
    """Where ceilings are looked for: the requests of one trace at one load under one seed."""

    trace: str
    load: float
    seed: int
    table: RequestTable


def check_ceilings(config: ArenaConfig, env: EnvConfig, traces: Mapping[str, TraceLike]) -> None:
    """Refuse, before anything is simulated, what is too large for the fluid bound.

    Args:
        config: The arena.
        env: The server under one condition.
        traces: Traces by label.

    Raises:
        ConfigError: The time bins are too many; the message names the trace.
    """
    for place in _places(config, env, traces):
        drawn = simulate(place.table, "fcfs", env, seed=place.seed, until_s=_AT_ONCE_S)
        try:
            check_size(drawn.requests, config.ceilings.bin_s)
        except ConfigError as error:
            raise ConfigError(f"{place.trace}: {error}") from None


def ceiling_rows(
    config: ArenaConfig,
    env: EnvConfig,
    labels: Mapping[str, str],
    traces: Mapping[str, TraceLike],
    rows: Sequence[Row],
) -> Iterator[CeilingRow]:
    """Yield the ceilings of every trace, load and chosen seed of one condition.

    Args:
        config: The arena.
        env: The server under the condition.
        labels: ``kv_pool`` and ``slo``.
        traces: Traces by label.
        rows: The rows of the condition, from which the best opponent is taken.
    """
    targets = {entry.label: entry.target for entry in policy_entries(config.policies)}
    for trace, load, seed, table in _places(config, env, traces):
        opponent = _best(rows, trace, load)
        runs = config.ceilings.hindsight_runs
        found = hindsight(table, targets[opponent], env, seed=seed, num_runs=runs)
        met = simulate(table, "fcfs", env, seed=seed).requests
        bound = fluid_bound(met, env, bin_s=config.ceilings.bin_s)
        yield CeilingRow(
            kv_pool=labels["kv_pool"],
            slo=labels["slo"],
            trace=trace,
            load=load,
            seed=seed,
            opponent=opponent,
            achieved=_achieved(rows, opponent, trace, load, seed),
            hindsight_start=found.start,
            hindsight=found.best,
            luck=found.luck,
            fluid_bound=bound.goodput_weighted,
        )


def _places(
    config: ArenaConfig, env: EnvConfig, traces: Mapping[str, TraceLike]
) -> Iterator[_Place]:
    """Yield every trace at every load under the chosen seeds."""
    setting = Setting(env, config.split, STARVATION_S, config.max_requests or None)
    runner = CellRunner(setting)
    for trace in trace_entries(traces):
        for load in config.loads:
            for seed in range(min(config.ceilings.num_seeds, config.num_seeds)):
                window = runner.window(trace, seed)
                table = at_load(window.table, load, window.capacity_rps)
                yield _Place(trace.label, load, seed, table)


def _best(rows: Sequence[Row], trace: str, load: float) -> str:
    values: dict[str, list[float]] = {}
    for row in rows:
        if (row["trace"], row["load"]) == (trace, load) and row["policy_kind"] != CLAIRVOYANT:
            values.setdefault(row["policy"], []).append(row["goodput_weighted"])
    return max(values, key=lambda policy: float(np.mean(values[policy])))


def _achieved(rows: Sequence[Row], policy: str, trace: str, load: float, seed: int) -> float:
    cell = (policy, trace, load, seed)
    return next(
        row["goodput_weighted"]
        for row in rows
        if (row["policy"], row["trace"], row["load"], row["seed"]) == cell
    )
