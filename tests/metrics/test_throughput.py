from __future__ import annotations

import math

import pytest

from sched_env.engine.records import WAITING
from sched_env.metrics import throughput
from tests.metrics.timelines import outcomes, served, unserved


def test_only_finished_requests_count():
    requests = outcomes(
        served(0, 0, 1, 2, 6), served(0, 0, 1, 1, 1, prompt_tokens=33), unserved(0, WAITING, 0)
    )
    assert throughput.request_throughput(requests, 4.0) == 0.5
    assert throughput.output_throughput(requests, 4.0) == 7 / 4
    assert throughput.total_token_throughput(requests, 4.0) == (7 + 43) / 4


@pytest.mark.parametrize("rate", [throughput.request_throughput, throughput.output_throughput])
def test_a_run_of_no_length_has_no_rate(rate):
    assert math.isnan(rate(outcomes(), 0.0))
