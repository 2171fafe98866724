from __future__ import annotations

import pytest

from sched_env.engine.records import REJECTED, SHED
from sched_env.metrics import summarize
from sched_env.metrics.conservation import LostRequestError
from tests.metrics.timelines import FakeResult, outcomes, served, unserved

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
LATENCIES = ("ttft", "tpot", "itl", "e2el", "queue_wait")
PROMISED_KEYS = {f"{statistic}_{name}_ms" for statistic in STATISTICS for name in LATENCIES} | {
    "num_injected",
    "num_finished",
    "num_rejected",
    "num_shed",
    "num_timed_out",
    "num_unfinished",
    "goodput_weighted",
    "slo_attainment",
    "request_goodput",
    "num_deadline_misses",
    "max_queue_wait_ms",
    "num_starved",
    "jain_fairness",
    "jain_fairness_classes",
    "num_preemptions",
    "num_recomputed_tokens",
    "max_preemptions_per_request",
    "recompute_tax",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "kv_cache_usage_mean",
    "makespan_s",
    "goodput_weighted_interactive",
    "slo_attainment_standard",
    "p99_ttft_ms_batch",
}


def test_every_promised_key_and_the_labels_first():
    labels = {"policy": "fcfs", "trace": "conv", "load": 1.0, "seed": 3}
    row = summarize(FakeResult(outcomes(served(0, 0, 0.5, 0.8, 3))), labels=labels)
    assert list(row)[:4] == ["policy", "trace", "load", "seed"]
    assert PROMISED_KEYS - set(row) == set()
    assert all(isinstance(value, int | float | str) for value in row.values())


def test_values_by_hand():
    requests = outcomes(
        served(0, 0.25, 0.5, 0.8, 5, service_class=0, weight=4.0),
        served(1, 2.5, 3.0, 3.0, 1, service_class=1, weight=2.0),
        unserved(2, REJECTED, SHED, finish=4.5, service_class=2),
    )
    row = summarize(FakeResult(requests, span_s=5.0), starvation_s=2.0)
    expected = {
        "num_injected": 3,
        "num_finished": 2,
        "num_rejected": 1,
        "goodput_weighted": 4 / 7,
        "slo_attainment": 1 / 3,
        "mean_ttft_ms": 1250.0,
        "mean_tpot_ms": 75.0,
        "mean_queue_wait_ms": 875.0,
        "max_queue_wait_ms": 2500.0,
        "num_starved": 1,
        "mean_itl_ms": 87.5,
        "request_throughput": 0.4,
        "total_token_throughput": 5.2,
        "makespan_s": 5.0,
        "goodput_weighted_interactive": 1.0,
        "slo_attainment_standard": 0.0,
        "num_injected_batch": 1,
    }
    assert {key: row[key] for key in expected} == pytest.approx(expected)


def test_undefined_is_nan_for_an_empty_run():
    row = summarize(FakeResult(outcomes(), span_s=0.0))
    assert row["num_injected"] == 0
    assert row["max_preemptions_per_request"] == 0
    for key in ("goodput_weighted", "mean_ttft_ms", "max_queue_wait_ms", "request_throughput"):
        assert repr(row[key]) == "nan"


def test_a_contradiction_is_never_summarised():
    requests = outcomes(served(0, 0, 0.5, 0.8, 3))
    requests["finish_s"] = 0.4
    with pytest.raises(LostRequestError):
        summarize(FakeResult(requests))
