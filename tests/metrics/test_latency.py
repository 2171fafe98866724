from __future__ import annotations

import math

import numpy as np
import pytest

from sched_env.engine.records import RUNNING, SHED, TIMED_OUT, TIMEOUT
from sched_env.metrics import latency
from tests.metrics.timelines import NAN, outcomes, served, unserved


def test_tokens_at_500_600_800_ms():
    requests = outcomes(served(0.0, 0.3, 0.5, 0.8, 3))
    assert latency.ttft_s(requests).tolist() == [0.5]
    np.testing.assert_allclose(latency.inter_token_latencies_s([0.5, 0.6, 0.8]), [0.1, 0.2])
    np.testing.assert_allclose(latency.tpot_s(requests), [0.15])
    assert latency.e2el_s(requests).tolist() == [0.8]


def test_ttft_counts_from_arrival_and_includes_the_queue_wait():
    requests = outcomes(served(2.0, 5.0, 6.0, 8.0, 2))
    assert latency.queue_wait_s(requests).tolist() == [3.0]
    assert latency.ttft_s(requests).tolist() == [4.0]


def test_one_token_has_no_tpot_and_does_not_enter_the_mean():
    requests = outcomes(served(0.0, 0.0, 0.5, 0.5, 1), served(0.0, 0.0, 0.5, 0.9, 5))
    tpot = latency.tpot_s(requests)
    assert math.isnan(tpot[0])
    assert latency.mean(tpot) == pytest.approx(0.1)


def test_unfinished_requests_have_no_e2el_and_no_tpot_but_keep_their_ttft():
    running = served(0.0, 0.1, 0.4, NAN, 3, status=RUNNING, finish_reason=0)
    timed_out = served(0.0, 0.1, 0.6, 5.0, 3, status=TIMED_OUT, finish_reason=TIMEOUT)
    requests = outcomes(running, timed_out)
    assert latency.ttft_s(requests).tolist() == [0.4, 0.6]
    assert np.isnan(latency.e2el_s(requests)).all()
    assert np.isnan(latency.tpot_s(requests)).all()


def test_never_scheduled_has_no_latency():
    requests = outcomes(unserved(1.0, 4, SHED, finish=3.0))
    for values in (latency.queue_wait_s, latency.ttft_s, latency.e2el_s, latency.tpot_s):
        assert np.isnan(values(requests)).all()


def test_statistics_in_milliseconds():
    values = np.append(np.arange(1, 101) / 1000, NAN)
    got = latency.latency_statistics("ttft", values)
    assert got == pytest.approx(
        {
            "mean_ttft_ms": 50.5,
            "p50_ttft_ms": 50.5,
            "p90_ttft_ms": 90.1,
            "p95_ttft_ms": 95.05,
            "p99_ttft_ms": 99.01,
        }
    )


def test_no_values_are_nan_without_a_warning():
    assert all(math.isnan(v) for v in latency.latency_statistics("ttft", [NAN]).values())
    assert all(math.isnan(v) for v in latency.histogram_statistics("itl", [0], [0, 1]).values())


def test_histogram_by_hand():
    counts, edges = [0, 8, 0, 2], [0.0, 1.0, 2.0, 3.0, 5.0]
    assert latency.histogram_mean(counts, edges) == pytest.approx((8 * 1.5 + 2 * 4) / 10)
    got = latency.histogram_percentiles(counts, edges, (0, 40, 80, 90, 100))
    assert got == pytest.approx({0: 1.0, 40: 1.5, 80: 2.0, 90: 4.0, 100: 5.0})


def test_histogram_agrees_with_the_values_to_a_bin():
    values = np.random.default_rng(0).lognormal(-3, 0.5, 20_000)
    edges = np.geomspace(1e-4, 10, 1000)
    counts, _ = np.histogram(values, edges)
    exact = latency.percentiles(values)
    for which, value in latency.histogram_percentiles(counts, edges).items():
        assert value == pytest.approx(exact[which], rel=0.012)
    assert latency.histogram_mean(counts, edges) == pytest.approx(values.mean(), rel=0.002)


def test_infinite_last_bin_counts_as_its_lower_edge():
    got = latency.histogram_percentiles([1, 1], [0.0, 1.0, np.inf], (100,))
    assert got[100] == 1.0
    assert latency.histogram_mean([1, 1], [0.0, 1.0, np.inf]) == 0.75


def test_wrong_number_of_edges():
    with pytest.raises(ValueError, match="2 bins need 3 edges, got 2"):
        latency.histogram_mean([1, 1], [0.0, 1.0])
