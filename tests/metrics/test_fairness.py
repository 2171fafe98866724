from __future__ import annotations

import math

import pytest

from sched_env.engine.records import (
    FINISH_REASON_NAMES,
    KV_CAPACITY,
    REJECTED,
    RUNNING,
    SHED,
    STATUS_NAMES,
    WAITING,
)
from sched_env.metrics import fairness
from sched_env.metrics.outcome import is_complete
from tests.metrics.timelines import NAN, outcomes, served, unserved


@pytest.mark.parametrize(
    ("shares", "index"),
    [([1, 1, 1], 1.0), ([1, 0, 0, 0], 0.25), ([0, 0], 1.0), ([1, 2, 3], 36 / 42)],
)
def test_jain_index(shares, index):
    assert fairness.jain_index(shares) == pytest.approx(index)


def test_jain_index_of_nothing():
    assert math.isnan(fairness.jain_index([]))


def test_slowdown_is_against_the_promised_e2el():
    # Promised 1 + 4 x 0.1 = 1.4 s each: kept in full, half kept, never finished.
    requests = outcomes(
        served(0, 0, 0.5, 0.7, 5), served(1, 1, 3.0, 3.8, 5), unserved(0, WAITING, 0)
    )
    assert fairness.slowdown(requests).tolist() == pytest.approx([0.5, 2.0, math.inf])
    assert fairness.promise_kept(requests).tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert fairness.jain_fairness(requests) == pytest.approx(1.5**2 / (3 * 1.25))


def test_an_answer_cut_short_is_no_promise_kept():
    requests = outcomes(served(0, 0, 0.5, 0.5, 1, output_tokens=9, finish_reason=KV_CAPACITY))
    assert fairness.promise_kept(requests).tolist() == [0.0]


def test_what_is_complete_is_one_rule_for_a_table_and_for_one_request():
    requests = outcomes(
        *(
            served(0, 0, 0.5, 0.5, 1, status=status, finish_reason=reason)
            for status in range(len(STATUS_NAMES))
            for reason in range(len(FINISH_REASON_NAMES))
        )
    )
    complete = is_complete(requests)
    assert complete.tolist() == [math.isfinite(one) for one in fairness.slowdown(requests)]
    assert complete.sum() == 3  # a finish by stop, by length or by the model's length


def test_quicker_than_promised_is_not_unfair():
    requests = outcomes(served(0, 0, 0.1, 0.1, 1), served(0, 0, 1.0, 1.0, 1))
    assert fairness.jain_fairness(requests) == 1.0


def test_no_slo_is_a_promise_kept():
    inf = math.inf
    requests = outcomes(
        served(0, 0, 9, 99, 1, tpot_slo_s=inf), served(0, 0, 9, 99, 4, tpot_slo_s=inf, ttft_slo_s=9)
    )
    assert fairness.promise_kept(requests).tolist() == pytest.approx([1 / 99, 1.0])


def test_classes_that_are_served_unequally():
    requests = outcomes(
        served(0, 0, 0.5, 0.5, 1, service_class=0),
        served(0, 0, 0.5, 0.5, 1, service_class=0),
        unserved(0, REJECTED, SHED, service_class=2),
    )
    assert fairness.jain_fairness_classes(requests) == pytest.approx(0.5)


def test_waits_of_requests_that_never_ran_count():
    requests = outcomes(
        served(0, 2.0, 3.0, 3.0, 1),
        unserved(1, REJECTED, SHED, finish=8.0),  # waited 7 s, then was turned away
        unserved(5, WAITING, 0),  # still waits at the end
        served(0, 4.0, 5.0, NAN, 1, status=RUNNING, finish_reason=0),
    )
    assert fairness.time_waited_s(requests, end_s=20.0).tolist() == [2.0, 7.0, 15.0, 4.0]
    assert fairness.max_queue_wait_s(requests, 20.0) == 15.0
    assert fairness.num_starved(requests, 20.0, starvation_s=7.0) == 1
    assert fairness.num_starved(requests, 20.0, starvation_s=3.0) == 3
