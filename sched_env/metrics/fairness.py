"""Who pays for the order: Jain's index over slowdowns, and starvation.

The slowdown of a request is its E2EL over the E2EL that it was promised (see
`sched_env.metrics.request_times`). The index is taken over the share of the promise that was kept,
min(1, 1 / slowdown), which is 0 for a request that never finished or was cut short: so requests
that were dropped count, and being quicker than promised makes nobody unfair.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sched_env.metrics.latency import queue_wait_s
from sched_env.metrics.outcome import Floats, RequestOutcomes
from sched_env.metrics.request_times import SLOWDOWN, request_times

STARVATION_S = 10.0
"""Default wait in seconds above which a request counts as starved."""


def jain_index(shares: npt.ArrayLike) -> float:
    """Return (sum x)^2 / (n sum x^2), from 1/n (one has all) to 1 (all equal).

    NaN for no shares; 1 where all shares are 0, since all are then equal.
    R. Jain, D. Chiu, W. Hawe, DEC-TR-301 (1984), section 2.
    """
    share = np.asarray(shares, np.float64)
    if share.size == 0:
        return float("nan")
    squares = float((share**2).sum())
    return float(share.sum() ** 2 / (share.size * squares)) if squares > 0 else 1.0


def slowdown(requests: RequestOutcomes) -> Floats:
    """Return E2EL / promised E2EL, infinite where not all the output came (n,)."""
    return request_times(requests)[SLOWDOWN]


def promise_kept(requests: RequestOutcomes) -> Floats:
    """Return the kept share of each promise, 0 where not complete (n,)."""
    return share_kept(slowdown(requests))


def share_kept(slowdowns: Floats) -> Floats:
    """Return min(1, 1 / slowdown) of each slowdown (n,)."""
    return 1.0 / np.maximum(slowdowns, 1.0)


def jain_fairness(requests: RequestOutcomes) -> float:
    """Return Jain's index over the kept shares of all injected requests."""
    return jain_index(promise_kept(requests))


def jain_fairness_classes(requests: RequestOutcomes) -> float:
    """Return Jain's index over the service classes' mean kept shares."""
    kept = promise_kept(requests)
    classes = requests["service_class"]
    return jain_index([kept[classes == index].mean() for index in np.unique(classes)])


def time_waited_s(requests: RequestOutcomes, end_s: float) -> Floats:
    """Return the queue wait of each request, up to its end where never scheduled (n,).

    Args:
        requests: The outcome table.
        end_s: Time of the last event; a request still waiting has waited until then.
    """
    until = np.where(np.isnan(requests["finish_s"]), end_s, requests["finish_s"])
    waited = np.maximum(until - requests["arrival_time_s"], 0.0)
    never_scheduled = np.isnan(requests["first_scheduled_s"])
    return np.where(never_scheduled, waited, queue_wait_s(requests))


def max_queue_wait_s(requests: RequestOutcomes, end_s: float) -> float:
    """Return the longest wait of any injected request, scheduled or not; NaN if none."""
    return float(time_waited_s(requests, end_s).max()) if requests.size else float("nan")


def num_starved(requests: RequestOutcomes, end_s: float, starvation_s: float = STARVATION_S) -> int:
    """Count injected requests, scheduled or not, that waited longer than ``starvation_s``."""
    return int((time_waited_s(requests, end_s) > starvation_s).sum())
