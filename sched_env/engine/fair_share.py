"""Virtual token counters: how much each service class has been served, by its weight.

A request counts its prompt as it is computed and its outputs, an output twice as much as a token of
the prompt; a prompt that was computed to its end and has to be computed again counts once. A class
that comes back to the queue is lifted to the least counter of those that wait, so that it cannot
save up service while it has nothing to run (Sheng et al., Fairness in Serving Large Language
Models, OSDI 2024).

A counter holds what was served outside the seats; what the running requests have been served comes
to it when a key that reads it is about to decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
from sched_env.engine.cohort import as_it_stands
from sched_env.engine.memory import backlog_of, classes_of, requests_of, running_of
from sched_env.engine.records import PREEMPTED, WAITING

OUTPUT_WEIGHT = 2.0
"""Tokens of a prompt that one output token is worth."""


@compiled_part
def _service(state: Any, request: Any, computed: int, outputs: int) -> float:
    """Return the tokens that a request has been served, over the weight of its class."""
    prompt = request.prompt_tokens if outputs > 0 else min(computed, request.prompt_tokens)
    weight = classes_of(state)[request.service_class].weight
    return (prompt + OUTPUT_WEIGHT * outputs) / weight


@compiled_part
def charge_class(state: Any, request: Any, sign: float) -> None:
    """Move what a request has been served into the counter of its class, or out of it.

    Args:
        state: The server.
        request: It leaves its seat, or gets one.
        sign: +1 where it leaves, -1 where it gets one.
    """
    if state.counts_classes:
        outputs = request.num_output_tokens
        served = _service(state, request, request.num_computed_tokens, outputs)
        state.class_tokens[request.service_class] += sign * served


@compiled_part
def count_running(state: Any) -> None:
    """Bring the counters up to date, and write those of their classes into running requests."""
    totals = state.class_totals
    for index in range(classes_of(state).size):
        totals[index] = state.class_tokens[index]
    for i in range(state.num_running):
        seat = as_it_stands(state, i)
        request = requests_of(state)[seat.row]
        served = _service(state, request, seat.num_computed_tokens, seat.num_output_tokens)
        totals[request.service_class] += served
    for i in range(state.num_running):
        request = requests_of(state)[running_of(state)[i].row]
        request.class_tokens = totals[request.service_class]


@compiled_part
def share_out(state: Any, count: int) -> None:
    """Write the counters into waiting requests, lifting those of classes that have come back.

    Args:
        state: The server.
        count: Entries of the backlog, all waiting requests among them.
    """
    count_running(state)
    waits = 0
    for position in range(count):
        request = requests_of(state)[backlog_of(state)[position].row]
        if request.status == WAITING or request.status == PREEMPTED:
            waits |= 1 << request.service_class
    lift(state, waits)
    for position in range(count):
        request = requests_of(state)[backlog_of(state)[position].row]
        if request.status == WAITING or request.status == PREEMPTED:
            request.class_tokens = state.class_totals[request.service_class]


@compiled_part
def lift(state: Any, waits: int) -> None:
    """Lift the classes that have come back to the queue to the least of those that stayed.

    Args:
        state: The server, whose counters are up to date.
        waits: One bit for each class of which a request waits.
    """
    stayed = waits & state.classes_waiting
    least = np.inf
    for index in range(classes_of(state).size):
        if (stayed >> index) & 1:
            least = min(least, state.class_totals[index])
    for index in range(classes_of(state).size):
        behind = least - state.class_totals[index]
        came = ((waits & ~stayed) >> index) & 1
        if came and 0.0 < behind < np.inf:
            state.class_tokens[index] += behind
            state.class_totals[index] += behind
    state.classes_waiting = waits
