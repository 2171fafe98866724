"""The event log: one record for each change of place of a request."""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.memory import events_of
from sched_env.engine.records import EVENT_ADMIT, EVENT_PREEMPT


@compiled_part
def record(state: Any, kind: int, request: Any, tokens: int, blocks: int) -> None:
    """Append an event at the clock, if events are recorded.

    ``tokens`` and ``blocks`` are what the event moved: tokens scheduled, lost or put out, and
    blocks taken (positive) or given back (negative). The driver sees to it that there is room;
    nothing is written beyond it.
    """
    if state.num_events >= state.event_capacity:
        state.num_lost_events += state.event_capacity > 0
        return
    event = events_of(state)[state.num_events]
    event.time_s = state.clock_s
    event.iteration = state.iteration
    event.kind = kind
    event.row = request.row
    event.tokens = tokens
    event.blocks = blocks
    event.free_blocks = state.free_blocks
    event.num_preemptions = request.num_preemptions
    state.num_events += 1
    if kind in (EVENT_ADMIT, EVENT_PREEMPT):
        state.num_recurring_events += 1
