"""Rows of evaluations that nobody ran."""

from __future__ import annotations

import math


def row(policy, goodput, *, trace="conv", load=1.0, seed=0, kind="heuristic", **more):
    """Build one flat row."""
    return {
        "policy": policy,
        "trace": trace,
        "load": load,
        "seed": seed,
        "policy_kind": kind,
        "split": "test",
        "length_prediction": "noisy(0.5)",
        "num_injected": 1000,
        "goodput_weighted": goodput,
        "p99_ttft_ms": 12345.678,
        "p99_tpot_ms": math.nan,
    } | more


def three_policies(num_seeds=4):
    """Build rows of fcfs (worst), sjf (best heuristic) and a network that beats it."""
    rows = []
    for policy, base in (("fcfs", 0.5), ("sjf", 0.8), ("ppo", 0.85)):
        for load in (0.8, 1.3):
            for seed in range(num_seeds):
                kind = "network" if policy == "ppo" else "heuristic"
                value = base - 0.1 * load + 0.01 * seed + (0.001 * seed if kind == "network" else 0)
                rows.append(row(policy, value, load=load, seed=seed, kind=kind))
    return rows
