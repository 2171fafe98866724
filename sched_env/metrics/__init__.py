"""How well a policy served: pure functions over the outcome table of a simulation."""

from __future__ import annotations

from sched_env.metrics.conservation import LostRequestError, OutcomeCounts, count_outcomes
from sched_env.metrics.latency import (
    e2el_s,
    inter_token_latencies_s,
    latency_statistics,
    percentiles,
    queue_wait_s,
    tpot_s,
    ttft_s,
)
from sched_env.metrics.slo import goodput_weighted, is_slo_met, slo_attainment
from sched_env.metrics.summary import Cell, Row, summarize

__all__ = [
    "Cell",
    "LostRequestError",
    "OutcomeCounts",
    "Row",
    "count_outcomes",
    "e2el_s",
    "goodput_weighted",
    "inter_token_latencies_s",
    "is_slo_met",
    "latency_statistics",
    "percentiles",
    "queue_wait_s",
    "slo_attainment",
    "summarize",
    "tpot_s",
    "ttft_s",
]
