"""Virtual token counters: how much each service class has been served, by its weight.

A request counts its prompt as it is computed and its outputs, an output twice as much as a token of
the prompt; what a preemption makes to be computed again counts once. A class that comes back
to the queue is lifted to the least counter of those that wait, so that it cannot save up service
while it has nothing to run (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024).

The counters are brought up to date only when a queue whose key reads them is put in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled_part
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
def charge_class(state: Any, request: Any) -> None:
    """Keep what an ended request has been served in the counter of its class."""
    if state.counts_classes:
        outputs = request.num_output_tokens
        served = _service(state, request, request.num_computed_tokens, outputs)
        state.class_tokens[request.service_class] += served


@compiled_part
def share_out(state: Any, count: int) -> None:
    """Write the counter of its class into every live request.

    Args:
        state: The server.
        count: Entries of the backlog, all waiting requests among them.
    """
    totals = state.class_totals
    num_classes = classes_of(state).size
    for index in range(num_classes):
        totals[index] = state.class_tokens[index]
    waits = 0
    for i in range(state.num_running):
        seat = running_of(state)[i]
        request = requests_of(state)[seat.row]
        served = _service(state, request, seat.num_computed_tokens, seat.num_output_tokens)
        totals[request.service_class] += served
    for position in range(count):
        request = requests_of(state)[backlog_of(state)[position].row]
        if request.status == WAITING or request.status == PREEMPTED:
            totals[request.service_class] += _service(state, request, 0, request.num_output_tokens)
            waits |= 1 << request.service_class
    _lift(state, waits)
    for i in range(state.num_running):
        request = requests_of(state)[running_of(state)[i].row]
        request.class_tokens = totals[request.service_class]
    for position in range(count):
        request = requests_of(state)[backlog_of(state)[position].row]
        request.class_tokens = totals[request.service_class]


@compiled_part
def _lift(state: Any, waits: int) -> None:
    """Lift the classes that have come back to the queue to the least of those that stayed."""
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
