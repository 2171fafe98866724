"""What the times of one request come to: each rule is written once, for one request.

Compiled code runs them over a whole table of requests, at the end of an episode as well as of a
simulation. With arrival a, first scheduling s, first token f, last token c and n output tokens:
queue wait = s - a, TTFT = f - a, TPOT = (c - f) / (n - 1) for n >= 2, E2EL = c - a, and slowdown is
E2EL over what was promised. What never happened is NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sched_env.compiled import compiled, compiled_part
from sched_env.engine.memory import requests_at
from sched_env.engine.records import FINISHED, LENGTH, MAX_MODEL_LEN, REQUEST, STOP

QUEUE_WAIT, TTFT, TPOT, E2EL, SLOWDOWN = range(5)
"""Rows of what :func:`request_times` returns."""

_NUM_ROWS = 5


def ended_complete(status: Any, finish_reason: Any) -> Any:
    """Tell whether a request ended with all the output that was asked for, or each of many.

    ``kv_capacity`` ends one with less. Numbers and arrays alike, compiled and as they stand.
    """
    is_whole = (finish_reason == STOP) | (finish_reason == LENGTH)
    return (status == FINISHED) & (is_whole | (finish_reason == MAX_MODEL_LEN))


_ended_complete: Any = compiled_part(ended_complete)


@compiled_part
def _tpot_s(request: Any) -> float:
    """Return the mean seconds per output token after the first.

    NaN for an unfinished request and for a single token: counting that as 0 would flatter the mean.
    """
    if request.status != FINISHED or request.num_output_tokens < 2:
        return math.nan
    return (request.finish_s - request.first_token_s) / (request.num_output_tokens - 1)


@compiled_part
def _e2el_s(request: Any) -> float:
    """Return the seconds from arrival to last token, NaN where not finished."""
    if request.status != FINISHED:
        return math.nan
    return request.finish_s - request.arrival_time_s


@compiled_part
def _promised_e2el_s(request: Any) -> float:
    """Return TTFT SLO + (output tokens asked for - 1) x TPOT SLO in seconds."""
    num_gaps = request.output_tokens - 1
    # A single token needs no TPOT: 0 x inf would be NaN where there is no SLO.
    return request.ttft_slo_s + (num_gaps * request.tpot_slo_s if num_gaps > 0 else 0.0)


@compiled_part
def _slowdown(request: Any) -> float:
    """Return E2EL / promised E2EL, infinite where not all the output came."""
    if not _ended_complete(request.status, request.finish_reason):
        return math.inf
    return _e2el_s(request) / _promised_e2el_s(request)


@compiled_part
def _times_of(request: Any) -> tuple[float, float, float, float, float]:
    """Return what the times of a request come to, in the order of the rows."""
    queue_wait_s = request.first_scheduled_s - request.arrival_time_s
    ttft_s = request.first_token_s - request.arrival_time_s
    return queue_wait_s, ttft_s, _tpot_s(request), _e2el_s(request), _slowdown(request)


@compiled
def _read_times(address: int, times: npt.NDArray[np.float64]) -> None:
    """Fill ``times`` (5, n) from the n requests that lie at an address."""
    requests = requests_at(address, times.shape[1])
    for i in range(times.shape[1]):
        for row, time_s in enumerate(_times_of(requests[i])):
            times[row, i] = time_s


@compiled
def _read_known_times(
    address: int, times: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> None:
    """Fill each row of ``times`` (5, n) from its beginning with what is known of ended requests.

    They are among the n that lie at an address. ``counts`` (5,) is how many are known by row.
    """
    requests = requests_at(address, times.shape[1])
    counts[:] = 0
    for i in range(times.shape[1]):
        if math.isnan(requests[i].finish_s):
            continue
        for row, time_s in enumerate(_times_of(requests[i])):
            times[row, counts[row]] = time_s
            counts[row] += not math.isnan(time_s)


def request_times(requests: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return what the times of requests come to, in seconds, slowdown a ratio (5, n).

    Args:
        requests: REQUEST (n,).
    """
    table = _outcome_table(requests)
    times = np.empty((_NUM_ROWS, len(table)))
    _read_times(table.ctypes.data, times)
    return times


def known_times(
    requests: npt.NDArray[np.void],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return what is known of those requests that have ended.

    Args:
        requests: REQUEST (n,).

    Returns:
        The rows of :func:`request_times` (5, n), each filled from its beginning with what is
        known, and how many that is by row (5,).
    """
    table = _outcome_table(requests)
    times, counts = np.empty((_NUM_ROWS, len(table))), np.empty(_NUM_ROWS, np.int64)
    _read_known_times(table.ctypes.data, times, counts)
    return times, counts


def _outcome_table(requests: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    table = np.ascontiguousarray(requests)
    if table.dtype.names != REQUEST.names:
        raise TypeError(f"requests are {table.dtype}: give an outcome table, REQUEST (n,)")
    return table
