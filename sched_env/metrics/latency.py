"""Latencies of single requests and their statistics.

The times of one request are defined in `sched_env.metrics.request_times`. ITL are the gaps between
consecutive tokens of a request. Percentiles interpolate linearly, as ``numpy.percentile`` and
``vllm bench serve`` do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sched_env.metrics.outcome import Floats, RequestOutcomes
from sched_env.metrics.request_times import E2EL, QUEUE_WAIT, TPOT, TTFT, request_times

REPORTED_PERCENTILES = (50, 90, 95, 99)


def queue_wait_s(requests: RequestOutcomes) -> Floats:
    """Return the seconds from arrival to first scheduling, NaN where never scheduled (n,)."""
    return request_times(requests)[QUEUE_WAIT]


def ttft_s(requests: RequestOutcomes) -> Floats:
    """Return the seconds from arrival to first token, queue wait included, NaN if none (n,)."""
    return request_times(requests)[TTFT]


def e2el_s(requests: RequestOutcomes) -> Floats:
    """Return the seconds from arrival to last token, NaN where not finished (n,)."""
    return request_times(requests)[E2EL]


def tpot_s(requests: RequestOutcomes) -> Floats:
    """Return the mean seconds per output token after the first (n,).

    NaN where the request did not finish or made a single token: such a request has no TPOT, and
    counting it as 0 would flatter the mean.
    """
    return request_times(requests)[TPOT]


def inter_token_latencies_s(token_times_s: npt.ArrayLike) -> Floats:
    """Return the gaps between consecutive token times of one request (num_tokens - 1,)."""
    return np.diff(np.asarray(token_times_s, np.float64))


def percentiles(
    values: npt.ArrayLike, which: Sequence[float] = REPORTED_PERCENTILES
) -> dict[float, float]:
    """Return the percentiles of the values that are not NaN; NaN each if there are none."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    known.sort()
    return {percent: percentile_of(known, percent) for percent in which}


def percentile_of(ordered: Floats, percent: float) -> float:
    """Interpolate a percentile of rising values linearly, as numpy does by default.

    NaN if there are none.
    """
    if ordered.size == 0:
        return float("nan")
    place = (ordered.size - 1) * percent / 100.0
    below = int(place)
    above = min(below + 1, ordered.size - 1)
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * (place - below)


def mean(values: npt.ArrayLike) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    return float(known.sum()) / known.size if known.size else float("nan")


def latency_statistics(name: str, values_s: npt.ArrayLike) -> dict[str, float]:
    """Return ``mean_<name>_ms`` and ``p50|p90|p95|p99_<name>_ms`` of latencies in seconds."""
    statistics = {f"mean_{name}_ms": 1e3 * mean(values_s)}
    for which, value in percentiles(values_s).items():
        statistics[f"p{which:g}_{name}_ms"] = 1e3 * value
    return statistics


def histogram_mean(counts: npt.ArrayLike, edges: npt.ArrayLike) -> float:
    """Return the mean of binned values, each taken at the middle of its bin; NaN if empty.

    Args:
        counts: Values in each bin (num_bins,).
        edges: Rising bin edges (num_bins + 1,); an infinite last edge counts as its lower one.
    """
    count, low, high = _bins(counts, edges)
    total = count.sum()
    return float((count * (low + high)).sum() / (2 * total)) if total else float("nan")


def histogram_percentiles(
    counts: npt.ArrayLike, edges: npt.ArrayLike, which: Sequence[float] = REPORTED_PERCENTILES
) -> dict[float, float]:
    """Return percentiles of binned values, each bin filled evenly; NaN each if empty.

    The error is at most the width of the bin that holds the percentile.

    Args:
        counts: Values in each bin (num_bins,).
        edges: Rising bin edges (num_bins + 1,); an infinite last edge counts as its lower one.
        which: Percentiles, 0 to 100.
    """
    count, low, high = _bins(counts, edges)
    filled = count > 0
    if not filled.any():
        return dict.fromkeys(which, float("nan"))
    count, low, high = count[filled], low[filled], high[filled]
    upto = np.cumsum(count)
    values: dict[float, float] = {}
    for q in which:
        rank = q / 100 * upto[-1]
        index = min(int(np.searchsorted(upto, rank)), count.size - 1)
        share = (rank - (upto[index] - count[index])) / count[index]
        values[q] = float(low[index] + share * (high[index] - low[index]))
    return values


def histogram_statistics(
    name: str, counts: npt.ArrayLike, edges_s: npt.ArrayLike
) -> dict[str, float]:
    """Return the same keys as `latency_statistics`, from a histogram of latencies in seconds."""
    statistics = {f"mean_{name}_ms": 1e3 * histogram_mean(counts, edges_s)}
    for which, value in histogram_percentiles(counts, edges_s).items():
        statistics[f"p{which:g}_{name}_ms"] = 1e3 * value
    return statistics


def _bins(counts: npt.ArrayLike, edges: npt.ArrayLike) -> tuple[Floats, Floats, Floats]:
    count = np.asarray(counts, np.float64)
    edge = np.asarray(edges, np.float64)
    if edge.size != count.size + 1:
        raise ValueError(f"{count.size} bins need {count.size + 1} edges, got {edge.size}")
    low, high = edge[:-1], edge[1:]
    return count, low, np.where(np.isinf(high), low, high)
