"""Hand-made outcome tables."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sched_env.engine.records import FINISHED, LENGTH, REQUEST

NAN = float("nan")


def served(arrival, scheduled, first, finish, tokens, **fields):
    """Describe a request that finished."""
    return {
        "arrival_time_s": arrival,
        "first_scheduled_s": scheduled,
        "first_token_s": first,
        "finish_s": finish,
        "num_output_tokens": tokens,
        "output_tokens": tokens,
    } | fields


def unserved(arrival, status, reason, finish=NAN, **fields):
    """Describe a request that never ran."""
    return {
        "arrival_time_s": arrival,
        "status": status,
        "finish_reason": reason,
        "first_scheduled_s": NAN,
        "first_token_s": NAN,
        "finish_s": finish,
        "output_tokens": 5,
        "num_output_tokens": 0,
    } | fields


def outcomes(*requests):
    """Build an outcome table; fields not given take plain defaults."""
    table = np.zeros(len(requests), REQUEST)
    table["row"] = np.arange(len(requests))
    table["prompt_tokens"] = 10
    table["weight"] = 1.0
    table["ttft_slo_s"] = 1.0
    table["tpot_slo_s"] = 0.1
    table["status"] = FINISHED
    table["finish_reason"] = LENGTH
    for row, request in zip(table, requests, strict=True):
        for name, value in request.items():
            row[name] = value
    return table


@dataclass
class FakeResult:
    """A simulation result with what the metrics read."""

    requests: np.ndarray
    span_s: float = 10.0
    num_iterations: int = 7
    num_decisions: int = 0
    num_invalid_actions: int = 0
    num_computed_tokens: int = 100
    num_cached_tokens: int = 0
    kv_usage_mean: float = 0.5
    itl_counts: np.ndarray = field(default_factory=lambda: np.array([3, 1]))
    itl_edges_s: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.1, 0.3]))
