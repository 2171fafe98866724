"""Nothing is lost in silence: each injected request ends in exactly one state.

A violation is a fault of ours, never of a user, so it is no `SchedEnvError`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from sched_env.engine.records import (
    FINISHED,
    KV_CAPACITY,
    LENGTH,
    MAX_MODEL_LEN,
    NO_PROGRESS,
    NOT_ENDED,
    PREEMPTED,
    REJECTED,
    RUNNING,
    SHED,
    STOP,
    TIMED_OUT,
    TIMEOUT,
    TOO_LARGE,
    WAITING,
)
from sched_env.metrics.outcome import Flags, RequestOutcomes

_REASONS_OF_STATUS = {
    WAITING: (NOT_ENDED,),
    RUNNING: (NOT_ENDED,),
    PREEMPTED: (NOT_ENDED,),
    FINISHED: (STOP, LENGTH, MAX_MODEL_LEN, KV_CAPACITY, NO_PROGRESS),
    REJECTED: (SHED, TOO_LARGE, NO_PROGRESS),
    TIMED_OUT: (TIMEOUT,),
}


class LostRequestError(RuntimeError):
    """A request is missing, or its record contradicts itself: a fault of the simulator."""


@dataclass(frozen=True)
class OutcomeCounts:
    """How the injected requests ended; injected is the sum of all but ``num_shed``."""

    num_injected: int
    num_finished: int
    num_rejected: int
    num_shed: int  # those of num_rejected that were turned away as hopeless
    num_timed_out: int
    num_unfinished: int


def count_outcomes(requests: RequestOutcomes) -> OutcomeCounts:
    """Count how requests ended.

    Args:
        requests: The outcome table.

    Raises:
        LostRequestError: injected is not finished + rejected + timed out + unfinished.
    """
    status = requests["status"]
    counts = OutcomeCounts(
        num_injected=len(requests),
        num_finished=int((status == FINISHED).sum()),
        num_rejected=int((status == REJECTED).sum()),
        num_shed=int((requests["finish_reason"] == SHED).sum()),
        num_timed_out=int((status == TIMED_OUT).sum()),
        num_unfinished=int(np.isin(status, (WAITING, RUNNING, PREEMPTED)).sum()),
    )
    ended = counts.num_finished + counts.num_rejected + counts.num_timed_out
    if counts.num_injected != ended + counts.num_unfinished:
        raise LostRequestError(
            f"{counts.num_injected} requests injected, but {counts.num_finished} finished + "
            f"{counts.num_rejected} rejected + {counts.num_timed_out} timed out + "
            f"{counts.num_unfinished} unfinished"
        )
    return counts


def check_records(requests: RequestOutcomes) -> None:
    """Check that no record of the outcome table contradicts itself.

    Args:
        requests: The outcome table.

    Raises:
        LostRequestError: a row appears twice, a reason does not belong to its status, times run
            backwards, or a finished request lacks a time or has made too many tokens.
    """
    rows = requests["row"]
    if np.unique(rows).size != rows.size:
        raise LostRequestError(f"{rows.size - np.unique(rows).size} requests are recorded twice")
    finished = requests["status"] == FINISHED
    for status, reasons in _REASONS_OF_STATUS.items():
        wrong = (requests["status"] == status) & ~np.isin(requests["finish_reason"], reasons)
        _raise_if_any(requests, wrong, "a finish_reason that its status does not allow")
    times = ("arrival_time_s", "first_scheduled_s", "first_token_s", "finish_s")
    for earlier, later in itertools.pairwise(times):
        backwards = requests[later] < requests[earlier]
        _raise_if_any(requests, backwards, f"{later} before {earlier}")
        _raise_if_any(requests, finished & np.isnan(requests[later]), f"finished and no {later}")
    made = requests["num_output_tokens"]
    _raise_if_any(requests, finished & (made < 1), "finished and no output token")
    _raise_if_any(requests, made > requests["output_tokens"], "more output than was asked for")


def _raise_if_any(requests: RequestOutcomes, wrong: Flags, fault: str) -> None:
    if wrong.any():
        row = requests[int(np.argmax(wrong))]
        raise LostRequestError(f"{int(wrong.sum())} requests with {fault}, the first: {row}")
