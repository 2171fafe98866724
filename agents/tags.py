"""TensorBoard tags of what the server did, beside those of stable-baselines3.

Tags name seconds, shares and counts. ``slo/``, ``latency/``, ``queue/``, ``engine/``,
``fairness/`` and ``policy/`` describe training traffic; the same names under ``validation/``
describe the validation split, on which policies are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

VALIDATION = "validation/"
SCORE_TAG = "eval/goodput_weighted"
"""The mean weighted goodput on the validation split, by which weights are kept."""

POLISH_TAG = "eval/polish_goodput_weighted"
"""The same of a policy that is being polished, on the scenarios of the search."""

TTFT_TAIL_TAG = "latency/ttft_p95_s"
"""Mean P95 TTFT, which an objective may weigh against goodput."""

TAGS: dict[str, tuple[str, float]] = {
    "slo_attainment": ("slo/attainment", 1.0),
    "goodput_weighted": ("slo/goodput_weighted", 1.0),
    "request_goodput": ("slo/goodput_rps", 1.0),
    "num_rejected_per_request": ("slo/rejected_per_request", 1.0),
    "p50_ttft_ms": ("latency/ttft_p50_s", 1e-3),
    "p95_ttft_ms": (TTFT_TAIL_TAG, 1e-3),
    "p99_ttft_ms": ("latency/ttft_p99_s", 1e-3),
    "p99_tpot_ms": ("latency/tpot_p99_s", 1e-3),
    "p99_e2el_ms": ("latency/e2el_p99_s", 1e-3),
    "p95_queue_wait_ms": ("queue/wait_p95_s", 1e-3),
    "queue_depth_mean": ("queue/depth", 1.0),
    "kv_cache_usage_mean": ("engine/kv_cache_usage", 1.0),
    "total_token_throughput": ("engine/tokens_per_s", 1.0),
    "num_preemptions_per_request": ("engine/preemptions_per_request", 1.0),
    "batch_tokens_mean": ("engine/batch_tokens", 1.0),
    "num_starved": ("fairness/starved_requests", 1.0),
    "jain_fairness": ("fairness/jain", 1.0),
}
"""Metric name to tag, and the factor that turns the metric into the tag's unit."""

_PER_REQUEST = ("num_rejected", "num_preemptions")


def with_rates(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``row`` with counts per injected request and the mean queue depth added.

    The mean number of waiting requests is arrival rate times mean wait (Little 1961).
    """
    rates = dict(row)
    num_injected = row.get("num_injected")
    if not num_injected:
        return rates
    for name in _PER_REQUEST:
        if name in row:
            rates[f"{name}_per_request"] = row[name] / num_injected
    span_s, wait_ms = row.get("makespan_s"), row.get("mean_queue_wait_ms")
    if span_s and wait_ms is not None and "queue_depth_mean" not in row:
        rates["queue_depth_mean"] = num_injected / span_s * wait_ms * 1e-3
    return rates


def tag_means(rows: Iterable[Mapping[str, Any]], prefix: str = "") -> dict[str, float]:
    """Return the mean of each known metric over ``rows``, by tag; what is undefined is left out."""
    rows = [with_rates(row) for row in rows]
    means: dict[str, float] = {}
    for name, (tag, factor) in TAGS.items():
        values = [float(row[name]) * factor for row in rows if row.get(name) is not None]
        finite = [value for value in values if np.isfinite(value)]
        if finite:
            means[prefix + tag] = float(np.mean(finite))
    return means


def validation_curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the score and every known metric of runs on the validation split, by tag."""
    score = float(np.mean([row["goodput_weighted"] for row in rows]))
    return {SCORE_TAG: score, **tag_means(rows, VALIDATION)}
