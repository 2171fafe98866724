"""Each policy against the heuristics, on the cells that both were run on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sched_env.errors import SchedEnvError, UnknownNameError
from sched_env.evaluation.statistics import (
    CONFIDENCE,
    NUM_RESAMPLES,
    Interval,
    IntervalMethod,
    bootstrap_mean,
    interquartile_mean,
    paired_difference,
)
from sched_env.metrics.summary import Row

HEURISTIC = "heuristic"
"""The kind of policy that others are compared with."""

TUNED = "tuned"
"""The kind of a score that a search made: compared with each by itself, never "the best one"."""

NETWORK = "network"
"""The kind of a learned policy."""

_LARGER_IS_BETTER = ("goodput", "attainment", "throughput", "jain", "num_finished")

CellKey = tuple[str, float | None, int]
"""Trace, load and seed: what two policies must share to be compared."""


@dataclass(frozen=True)
class Versus:
    """The paired difference of one policy to an opponent; above 0 means a larger metric."""

    heuristic: str
    difference: Interval
    num_better: int
    num_worse: int


@dataclass(frozen=True)
class PolicyComparison:
    """One policy over all its cells."""

    policy: str
    kind: str
    mean: Interval
    interquartile_mean: float
    versus_best: Versus | None  # None for the best heuristic itself, or where there is none
    versus_each: tuple[Versus, ...]


@dataclass(frozen=True)
class ConditionComparison:
    """One policy at one trace and load, over seeds, against the overall best heuristic."""

    policy: str
    trace: str
    load: float | None
    mean: Interval
    versus_best: Versus | None


@dataclass(frozen=True)
class Comparison:
    """All policies compared by one metric."""

    metric: str
    larger_is_better: bool
    best_heuristic: str | None
    confidence: float
    num_resamples: int
    method: IntervalMethod
    policies: tuple[PolicyComparison, ...]
    conditions: tuple[ConditionComparison, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested values, NaN as they are."""
        return dataclasses.asdict(self)


def is_larger_better(metric: str) -> bool:
    """Return whether more of this metric is better (goodput, throughput) or less (latency)."""
    return any(word in metric for word in _LARGER_IS_BETTER)


def compare(
    rows: Sequence[Row],
    *,
    metric: str = "goodput_weighted",
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
    method: IntervalMethod = "bca",
    seed: int = 0,
) -> Comparison:
    """Compare every policy with the heuristics, paired by (trace, load, seed).

    The best heuristic is the one with the best mean of the metric over these very cells. Choosing
    it afterwards favours the heuristics, never the policy that is compared with it.

    Args:
        rows: Flat rows with policy, policy_kind, trace, load, seed and the metric.
        metric: Name of the metric.
        confidence: Probability that intervals are to cover.
        num_resamples: Resamples of the bootstrap.
        method: Kind of bootstrap interval.
        seed: Seed of the bootstrap.

    Raises:
        SchedEnvError: there are no rows, or a policy has two rows for one cell.
        UnknownNameError: the rows have no such metric.
    """
    values, kinds = _values_by_policy(rows, metric)
    larger = is_larger_better(metric)
    heuristics = [policy for policy, kind in kinds.items() if kind == HEURISTIC]
    opponents = [policy for policy, kind in kinds.items() if kind in (HEURISTIC, TUNED)]
    best = _best(heuristics, values, larger)
    pairing = _Pairing(values, larger, confidence, num_resamples, method, seed)
    return Comparison(
        metric=metric,
        larger_is_better=larger,
        best_heuristic=best,
        confidence=confidence,
        num_resamples=num_resamples,
        method=method,
        policies=tuple(
            PolicyComparison(
                policy=policy,
                kind=kinds[policy],
                mean=pairing.mean(policy),
                interquartile_mean=interquartile_mean(list(values[policy].values())),
                versus_best=pairing.versus(policy, best),
                versus_each=tuple(
                    versus for other in opponents if (versus := pairing.versus(policy, other))
                ),
            )
            for policy in values
        ),
        conditions=_conditions(pairing, best),
    )


def _conditions(pairing: _Pairing, best: str | None) -> tuple[ConditionComparison, ...]:
    compared = []
    for policy, cells in pairing.values.items():
        for trace, load in dict.fromkeys(key[:2] for key in cells):
            keys = {key for key in cells if key[:2] == (trace, load)}
            mean, versus = pairing.mean(policy, keys), pairing.versus(policy, best, keys)
            compared.append(ConditionComparison(policy, trace, load, mean, versus))
    return tuple(compared)


@dataclass(frozen=True)
class _Pairing:
    values: dict[str, dict[CellKey, float]]
    larger_is_better: bool
    confidence: float
    num_resamples: int
    method: IntervalMethod
    seed: int

    def mean(self, policy: str, keys: set[CellKey] | None = None) -> Interval:
        cells = self.values[policy]
        chosen = [value for key, value in cells.items() if keys is None or key in keys]
        return bootstrap_mean(
            chosen,
            confidence=self.confidence,
            num_resamples=self.num_resamples,
            method=self.method,
            seed=self.seed,
        )

    def versus(
        self, policy: str, heuristic: str | None, keys: set[CellKey] | None = None
    ) -> Versus | None:
        if heuristic is None or policy == heuristic:
            return None
        ours, theirs = self.values[policy], self.values[heuristic]
        shared = [key for key in ours if key in theirs and (keys is None or key in keys)]
        left = np.array([ours[key] for key in shared], np.float64)
        right = np.array([theirs[key] for key in shared], np.float64)
        interval = paired_difference(
            left,
            right,
            confidence=self.confidence,
            num_resamples=self.num_resamples,
            method=self.method,
            seed=self.seed,
        )
        above, below = int((left > right).sum()), int((left < right).sum())
        better, worse = (above, below) if self.larger_is_better else (below, above)
        return Versus(heuristic, interval, better, worse)


def _values_by_policy(
    rows: Sequence[Row], metric: str
) -> tuple[dict[str, dict[CellKey, float]], dict[str, str]]:
    if not rows:
        raise SchedEnvError("there are no results to compare: evaluate some policies first")
    values: dict[str, dict[CellKey, float]] = {}
    kinds: dict[str, str] = {}
    for row in rows:
        if metric not in row:
            raise UnknownNameError("metric", metric, list(row))
        policy, load = str(row["policy"]), row["load"]
        key = (str(row["trace"]), None if load is None else float(load), int(row["seed"] or 0))
        cells = values.setdefault(policy, {})
        if key in cells:
            raise SchedEnvError(
                f"policy {policy!r} has two results for trace {key[0]!r}, load {key[1]}, "
                f"seed {key[2]}: give each policy and trace its own name"
            )
        value = row[metric]
        cells[key] = math.nan if value is None else float(value)
        kinds[policy] = str(row.get("policy_kind") or HEURISTIC)
    return values, kinds


def _best(
    heuristics: Sequence[str], values: dict[str, dict[CellKey, float]], larger: bool
) -> str | None:
    """Return the heuristic with the best mean over the cells that all heuristics share."""
    if not heuristics:
        return None
    shared = set.intersection(*(set(values[name]) for name in heuristics))
    sign = 1 if larger else -1
    means = {
        name: sign * float(np.mean([values[name][key] for key in sorted(shared, key=str)]))
        for name in heuristics
        if shared
    }
    known = {name: mean for name, mean in means.items() if not math.isnan(mean)}
    return max(known, key=lambda name: known[name]) if known else None
