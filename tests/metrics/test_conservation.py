from __future__ import annotations

import pytest

from sched_env.engine.records import (
    NO_PROGRESS,
    PREEMPTED,
    REJECTED,
    SHED,
    TIMED_OUT,
    TIMEOUT,
    TOO_LARGE,
    WAITING,
)
from sched_env.errors import SchedEnvError
from sched_env.metrics.conservation import LostRequestError, check_records, count_outcomes
from tests.metrics.timelines import NAN, outcomes, served, unserved

EVERY_END = (
    served(0, 0, 1, 2, 5),
    unserved(0, REJECTED, SHED, finish=3.0),
    unserved(0, REJECTED, TOO_LARGE, finish=0.0),
    unserved(0, TIMED_OUT, TIMEOUT, finish=3.0),
    unserved(0, WAITING, 0),
    served(0, 0, 1, NAN, 2, status=PREEMPTED, finish_reason=0),
)


def test_every_end_is_counted_once():
    requests = outcomes(*EVERY_END)
    check_records(requests)
    counts = count_outcomes(requests)
    assert (counts.num_injected, counts.num_finished, counts.num_rejected) == (6, 1, 2)
    assert (counts.num_shed, counts.num_timed_out, counts.num_unfinished) == (1, 1, 2)


@pytest.mark.parametrize(
    "stuck",
    [
        served(0, 0, 1, 2, 3, output_tokens=9, finish_reason=NO_PROGRESS),
        unserved(0, REJECTED, NO_PROGRESS, finish=3.0),
    ],
)
def test_who_could_not_go_on_has_ended(stuck):
    check_records(outcomes(stuck))


def test_a_request_in_no_known_state_is_lost():
    requests = outcomes(*EVERY_END)
    requests["status"][0] = 9
    with pytest.raises(LostRequestError, match="6 requests injected, but 0 finished"):
        count_outcomes(requests)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("row", 1, "1 requests are recorded twice"),
        ("finish_reason", SHED, "a finish_reason that its status does not allow"),
        ("first_token_s", 2.5, "finish_s before first_token_s"),
        ("first_scheduled_s", -1.0, "first_scheduled_s before arrival_time_s"),
        ("finish_s", NAN, "finished and no finish_s"),
        ("num_output_tokens", 0, "finished and no output token"),
        ("num_output_tokens", 6, "more output than was asked for"),
        ("status", WAITING, "a finish_reason that its status does not allow"),
    ],
)
def test_a_record_that_contradicts_itself(field, value, message):
    requests = outcomes(*EVERY_END)
    requests[field][0] = value
    with pytest.raises(LostRequestError, match=message):
        check_records(requests)


def test_it_is_no_fault_of_the_user():
    assert not issubclass(LostRequestError, SchedEnvError)
