from __future__ import annotations

import math

from sched_env.metrics import preemption
from tests.metrics.timelines import outcomes, served


def test_counts_and_recompute_tax():
    requests = outcomes(
        served(0, 0, 1, 2, 3, num_preemptions=3, num_recomputed_tokens=30),
        served(0, 0, 1, 2, 3, num_preemptions=1, num_recomputed_tokens=2),
        served(0, 0, 1, 2, 3),
    )
    assert preemption.num_preemptions(requests) == 4
    assert preemption.num_preempted_requests(requests) == 2
    assert preemption.max_preemptions_per_request(requests) == 3
    assert preemption.num_recomputed_tokens(requests) == 32
    assert preemption.recompute_tax(requests, 100) == 0.32


def test_nothing_computed_has_no_tax():
    assert math.isnan(preemption.recompute_tax(outcomes(), 0))
    assert preemption.max_preemptions_per_request(outcomes()) == 0
