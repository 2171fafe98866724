from __future__ import annotations

import math

import pytest

from sched_env.engine.records import KV_CAPACITY, MAX_MODEL_LEN, REJECTED, SHED, STOP, WAITING
from sched_env.metrics import slo
from tests.metrics.timelines import outcomes, served, unserved


@pytest.mark.parametrize(
    ("request_", "met"),
    [
        (served(0, 0.5, 1.0, 1.4, 5), True),  # both exactly at their SLO
        (served(0, 0.5, 1.01, 1.4, 5), False),  # TTFT missed
        (served(0, 0.5, 1.0, 1.41, 5), False),  # TPOT missed
        (served(0, 0.5, 0.9, 0.9, 1, tpot_slo_s=0.0), True),  # a single token has no TPOT
        (served(0, 0.5, 0.9, 0.9, 1, finish_reason=STOP), True),
        (served(0, 0.5, 0.9, 0.9, 1, finish_reason=MAX_MODEL_LEN), True),
        (served(0, 0.5, 0.9, 0.9, 1, finish_reason=KV_CAPACITY), False),  # cut short
        (unserved(0, REJECTED, SHED, finish=0.5), False),
        (unserved(0, WAITING, 0), False),
    ],
)
def test_met(request_, met):
    requests = outcomes(request_)
    assert slo.is_slo_met(requests).tolist() == [met]
    assert slo.slo_attainment(requests) == float(met)


def test_goodput_weighs_all_injected_requests():
    requests = outcomes(
        served(0, 0, 0.5, 0.5, 1, weight=4.0),
        served(0, 0, 2.0, 2.0, 1, weight=2.0),
        unserved(0, REJECTED, SHED, weight=1.0),
        unserved(0, WAITING, 0, weight=1.0),
    )
    assert slo.goodput_weighted(requests) == 4 / 8
    assert slo.slo_attainment(requests) == 1 / 4
    assert slo.request_goodput(requests, span_s=4.0) == 1 / 4
    assert slo.num_deadline_misses(requests) == 3


def test_tpot_misses_count_only_requests_that_have_a_tpot():
    requests = outcomes(
        served(0, 0, 0.5, 2.0, 5), served(0, 0, 0.5, 0.5, 1), unserved(0, WAITING, 0)
    )
    assert slo.num_tpot_misses(requests) == 1


def test_no_requests_is_undefined_not_zero():
    nothing = outcomes()
    assert math.isnan(slo.slo_attainment(nothing))
    assert math.isnan(slo.goodput_weighted(nothing))
    assert math.isnan(slo.request_goodput(nothing, 0.0))
