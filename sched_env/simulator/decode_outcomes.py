"""The outcome table of the teaching machine, for the same metrics as the big engine's.

One step counts as one second: `sched_env.metrics` then gives queue wait, TTFT, TPOT, E2EL and
preemptions in steps. SLOs stay infinite, for a deadline is one of the last token, which
``deadline_missed`` in the events tells of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine.records import LENGTH, REQUEST, STATUS_NAMES

if TYPE_CHECKING:
    from sched_env.simulator.request_state import RequestState

_TIMES = ("first_scheduled_s", "first_token_s", "last_token_s", "finish_s")


def decode_outcomes(
    queue: Sequence[RequestState],
    arrivals: Mapping[int, int],
    timeline: Sequence[Mapping[str, Any]],
    clocks: Sequence[int],
) -> NDArray[Any]:
    """Return the outcome table, REQUEST (num_requests,), in the order of the queue.

    Args:
        queue: The requests.
        arrivals: Clock at which each was enqueued, by id; 0 where unknown.
        timeline: The events.
        clocks: Clock before each event.
    """
    table = np.zeros(len(queue), REQUEST)
    for name in _TIMES:
        table[name] = np.nan
    table["ttft_slo_s"] = table["tpot_slo_s"] = np.inf
    rows = {request.request_id: row for row, request in enumerate(queue)}
    for row, request in enumerate(queue):
        _fill(table[row], request, row, arrivals.get(request.request_id, 0))
    for event, clock in zip(timeline, clocks, strict=True):
        if event["request_id"] in rows:
            _note(table[rows[event["request_id"]]], event, clock)
    return table


def _fill(outcome: Any, request: RequestState, row: int, arrival: int) -> None:
    outcome["row"] = row
    outcome["arrival_time_s"] = arrival
    outcome["prompt_tokens"] = request.prompt_len
    outcome["output_tokens"] = request.max_new_tokens
    outcome["num_output_tokens"] = request.generated_len
    outcome["priority"] = request.priority
    outcome["weight"] = 1 + max(request.priority, 0)
    outcome["num_preemptions"] = request.preemptions
    outcome["preemptible"] = request.preemptible
    outcome["status"] = STATUS_NAMES.index(request.status)
    outcome["finish_reason"] = LENGTH if request.status == "finished" else 0


def _note(outcome: Any, event: Mapping[str, Any], clock: int) -> None:
    if np.isnan(outcome["first_scheduled_s"]):
        outcome["first_scheduled_s"] = clock
    if event["phase"] == "decode":
        if np.isnan(outcome["first_token_s"]):
            outcome["first_token_s"] = clock + 1
        outcome["last_token_s"] = clock + 1
    if event["action"] == "finish":
        outcome["finish_s"] = clock + 1
