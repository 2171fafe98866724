"""One flat row of metrics for one simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sched_env.metrics import fairness, latency, preemption, slo, throughput
from sched_env.metrics.conservation import check_records, count_outcomes
from sched_env.metrics.outcome import Outcome, RequestOutcomes
from sched_env.workload.service_classes import DEFAULT_SERVICE_CLASS_NAMES

Cell = float | int | str | None
"""A value of a flat row: a number (NaN where undefined), a label, or nothing."""

Row = dict[str, Any]
"""A flat row: label and metric names to values, each a `Cell`."""


def summarize(
    result: Outcome,
    *,
    labels: Mapping[str, Cell] | None = None,
    class_names: Sequence[str] = DEFAULT_SERVICE_CLASS_NAMES,
    starvation_s: float = fairness.STARVATION_S,
) -> Row:
    """Return every metric of a simulation as one flat row.

    Rates and shares are over all injected requests; rejected, timed-out and unfinished ones count
    as missed. A latency is over the requests that have it. What is undefined is NaN.

    Args:
        result: A finished simulation; its outcome table has one row a request.
        labels: Put first in the row, such as policy, trace, load and seed.
        class_names: Names of the service classes, by index.
        starvation_s: Wait in seconds above which a request counts as starved.

    Returns:
        The labels, then metric name to value; names ending in ``_ms`` are milliseconds, in ``_s``
        seconds, throughputs per second.

    Raises:
        LostRequestError: the outcome table contradicts itself, which is a fault of ours.
    """
    requests = result.requests
    check_records(requests)
    row: Row = dict(labels or {})
    row.update(asdict(count_outcomes(requests)))
    row.update(_slo_metrics(requests, result.span_s))
    row.update(_latency_metrics(result))
    row.update(_fairness_metrics(result, starvation_s))
    row.update(_preemption_metrics(result))
    row.update(_engine_metrics(result))
    for index, name in enumerate(class_names):
        row.update(_class_metrics(requests[requests["service_class"] == index], name))
    return row


def _slo_metrics(requests: RequestOutcomes, span_s: float) -> Row:
    return {
        "goodput_weighted": slo.goodput_weighted(requests),
        "slo_attainment": slo.slo_attainment(requests),
        "request_goodput": slo.request_goodput(requests, span_s),
        "num_deadline_misses": slo.num_deadline_misses(requests),
        "num_tpot_misses": slo.num_tpot_misses(requests),
    }


def _latency_metrics(result: Outcome) -> Row:
    requests = result.requests
    row: Row = {}
    row.update(latency.latency_statistics("ttft", latency.ttft_s(requests)))
    row.update(latency.latency_statistics("tpot", latency.tpot_s(requests)))
    row.update(latency.histogram_statistics("itl", result.itl_counts, result.itl_edges_s))
    row.update(latency.latency_statistics("e2el", latency.e2el_s(requests)))
    row.update(latency.latency_statistics("queue_wait", latency.queue_wait_s(requests)))
    return row


def _fairness_metrics(result: Outcome, starvation_s: float) -> Row:
    requests = result.requests
    end_s = result.span_s + (float(requests["arrival_time_s"].min()) if requests.size else 0.0)
    return {
        "max_queue_wait_ms": 1e3 * fairness.max_queue_wait_s(requests, end_s),
        "num_starved": fairness.num_starved(requests, end_s, starvation_s),
        "jain_fairness": fairness.jain_fairness(requests),
        "jain_fairness_classes": fairness.jain_fairness_classes(requests),
    }


def _preemption_metrics(result: Outcome) -> Row:
    requests = result.requests
    return {
        "num_preemptions": preemption.num_preemptions(requests),
        "num_preempted_requests": preemption.num_preempted_requests(requests),
        "max_preemptions_per_request": preemption.max_preemptions_per_request(requests),
        "num_recomputed_tokens": preemption.num_recomputed_tokens(requests),
        "recompute_tax": preemption.recompute_tax(requests, result.num_computed_tokens),
        "num_cached_tokens": result.num_cached_tokens,
    }


def _engine_metrics(result: Outcome) -> Row:
    requests, span_s = result.requests, result.span_s
    return {
        "request_throughput": throughput.request_throughput(requests, span_s),
        "output_throughput": throughput.output_throughput(requests, span_s),
        "total_token_throughput": throughput.total_token_throughput(requests, span_s),
        "kv_cache_usage_mean": float(result.kv_usage_mean),
        "makespan_s": float(span_s),
        "num_iterations": int(result.num_iterations),
        "num_decisions": int(result.num_decisions),
        "num_invalid_actions": int(result.num_invalid_actions),
    }


def _class_metrics(requests: RequestOutcomes, name: str) -> Row:
    ttft = latency.percentiles(latency.ttft_s(requests), (50, 99))
    tpot = latency.percentiles(latency.tpot_s(requests), (50, 99))
    return {
        f"num_injected_{name}": len(requests),
        f"goodput_weighted_{name}": slo.goodput_weighted(requests),
        f"slo_attainment_{name}": slo.slo_attainment(requests),
        f"p50_ttft_ms_{name}": 1e3 * ttft[50],
        f"p99_ttft_ms_{name}": 1e3 * ttft[99],
        f"p50_tpot_ms_{name}": 1e3 * tpot[50],
        f"p99_tpot_ms_{name}": 1e3 * tpot[99],
    }
