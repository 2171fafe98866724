"""The regime map: who wins at which load, KV pool and SLO tightness, and where it is all one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sched_env.evaluation.entries import CLAIRVOYANT
from sched_env.evaluation.statistics import Interval, paired_difference
from sched_env.evaluation.table import TextTable
from sched_env.metrics.summary import Row


@dataclass(frozen=True)
class Regime:
    """One cell of the map.

    Attributes:
        kv_pool: Label of the KV pool.
        slo: Label of the SLO tightness.
        load: Arrival rate over what fcfs can drain.
        best: The policy with the highest mean.
        goodput_weighted: Its mean over traces and seeds.
        runner_up: The second best; empty if there is none.
        lead: Paired difference of the two.
        equals: Policies that the best one is not told apart from, by their intervals.
        spread: Mean of the best minus mean of the worst.
    """

    kv_pool: str
    slo: str
    load: float
    best: str
    goodput_weighted: float
    runner_up: str
    lead: Interval | None
    equals: tuple[str, ...]
    spread: float


def regimes(rows: Sequence[Row], *, seed: int = 0) -> list[Regime]:
    """Return the map of all conditions, over all traces; clairvoyant policies are left out.

    Args:
        rows: Rows of an arena, of one trace or of several.
        seed: Seed of the bootstrap.
    """
    opponents = [row for row in rows if row["policy_kind"] != CLAIRVOYANT]
    cells = dict.fromkeys((row["kv_pool"], row["slo"], row["load"]) for row in opponents)
    return [_regime(opponents, *cell, seed=seed) for cell in cells]


def _regime(rows: Sequence[Row], kv_pool: str, slo: str, load: float, *, seed: int) -> Regime:
    values: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        if (row["kv_pool"], row["slo"], row["load"]) == (kv_pool, slo, load):
            pair = (str(row["trace"]), int(row["seed"]))
            values.setdefault(str(row["policy"]), {})[pair] = float(row["goodput_weighted"])
    means = {policy: float(np.mean(list(cells.values()))) for policy, cells in values.items()}
    ranked = sorted(means, key=lambda policy: -means[policy])
    best, others = ranked[0], ranked[1:]
    leads = {other: _lead(values[best], values[other], seed) for other in others}
    return Regime(
        kv_pool=kv_pool,
        slo=slo,
        load=load,
        best=best,
        goodput_weighted=means[best],
        runner_up=others[0] if others else "",
        lead=leads[others[0]] if others else None,
        equals=tuple(other for other, lead in leads.items() if not lead.low > 0),
        spread=means[best] - means[ranked[-1]],
    )


def _lead(
    ours: dict[tuple[str, int], float], theirs: dict[tuple[str, int], float], seed: int
) -> Interval:
    shared = [pair for pair in ours if pair in theirs]
    return paired_difference(
        [ours[pair] for pair in shared],
        [theirs[pair] for pair in shared],
        num_resamples=2_000,
        seed=seed,
    )


def regime_table(found: Sequence[Regime], *, tie_within: float, title: str) -> TextTable:
    """Return the map as a table: conditions down, loads across.

    A cell holds the winner and its mean; ``+n`` counts the policies it is not told apart from. A
    cell whose policies all lie within ``tie_within`` names none.
    """
    loads = list(dict.fromkeys(one.load for one in found))
    conditions = list(dict.fromkeys((one.kv_pool, one.slo) for one in found))
    cells = {(one.kv_pool, one.slo, one.load): one for one in found}
    rows = [
        (
            f"{pool} KV, {slo} SLO",
            *(regime_text(cells[pool, slo, load], tie_within) for load in loads),
        )
        for pool, slo in conditions
    ]
    return TextTable(title, ("condition", *(f"load {load:g}" for load in loads)), tuple(rows))


def regime_text(one: Regime, tie_within: float) -> str:
    """Return what a cell of the map says."""
    if one.spread < tie_within:
        return f"all alike {one.goodput_weighted:.3f}"
    equals = f" +{len(one.equals)}" if one.equals else ""
    return f"{one.best} {one.goodput_weighted:.3f}{equals}"
