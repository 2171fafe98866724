"""Service-level objectives: which requests were served as promised.

A request is met when it finished with all its output, its first token came within its TTFT SLO,
and its TPOT stayed within its TPOT SLO (a single token has no TPOT and needs none). Every injected
request counts in the denominator: rejected, timed out and unfinished ones are missed.
"""

from __future__ import annotations

import numpy as np

from sched_env.metrics.latency import tpot_s, ttft_s
from sched_env.metrics.outcome import Flags, RequestOutcomes, is_complete


def is_ttft_met(requests: RequestOutcomes) -> Flags:
    """Flag requests whose first token came within their TTFT SLO (n,)."""
    return ttft_s(requests) <= requests["ttft_slo_s"]


def is_tpot_met(requests: RequestOutcomes) -> Flags:
    """Flag finished requests whose TPOT is within their TPOT SLO, or that made one token (n,)."""
    single_token = is_complete(requests) & (requests["num_output_tokens"] == 1)
    return single_token | (tpot_s(requests) <= requests["tpot_slo_s"])


def is_slo_met(requests: RequestOutcomes) -> Flags:
    """Flag requests that were served as promised (n,)."""
    return is_complete(requests) & is_ttft_met(requests) & is_tpot_met(requests)


def slo_attainment(requests: RequestOutcomes) -> float:
    """Return requests met / requests injected; NaN where none was injected."""
    return float(is_slo_met(requests).mean()) if requests.size else float("nan")


def goodput_weighted(requests: RequestOutcomes) -> float:
    """Return weight met / weight injected; NaN where no weight was injected."""
    weight = np.asarray(requests["weight"], np.float64)
    injected = weight.sum()
    return float(weight[is_slo_met(requests)].sum() / injected) if injected > 0 else float("nan")


def request_goodput(requests: RequestOutcomes, span_s: float) -> float:
    """Return requests met per second of the run; NaN where the run has no length."""
    return float(is_slo_met(requests).sum() / span_s) if span_s > 0 else float("nan")


def num_deadline_misses(requests: RequestOutcomes) -> int:
    """Count requests without a first token by their deadline, arrival + TTFT SLO."""
    return int((~is_ttft_met(requests)).sum())


def num_tpot_misses(requests: RequestOutcomes) -> int:
    """Count finished requests of two and more tokens whose TPOT is above their TPOT SLO."""
    return int((tpot_s(requests) > requests["tpot_slo_s"]).sum())
