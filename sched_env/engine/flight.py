"""Batches in flight: scheduling ahead of the outputs (``async_scheduling``).

The next batch is formed while the last one runs, so two are in flight (vLLM's AsyncScheduler and
``EngineCore.step_with_batch_queue``, vllm/v1/engine/core.py). A request carries its tokens of both:
``num_scheduled_tokens`` of the newest, ``in_flight`` where the oldest has some, with the output
tokens to come as placeholders. A preempted request still receives the token that the oldest batch
brings (it is "stale"), and is not admitted before that.
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.ending import end, settle
from sched_env.engine.memory import requests_of, running_of, stale_of
from sched_env.engine.output import append_tokens
from sched_env.engine.pool import know_blocks
from sched_env.engine.records import BRINGS_OUTPUT, FINISHED, IN_FLIGHT, NOT_IN_FLIGHT
from sched_env.engine.waiting import (
    count_in,
    count_out,
    is_waiting,
    lengthen,
    take_out,
)


@compiled_part
def make_room_for_batch(state: Any) -> None:
    """Make the batch in flight, if there is one, the oldest, before another is formed."""
    if state.num_in_flight == 1:
        _age(state)


@compiled_part
def _age(state: Any) -> None:
    state.oldest_step_s = state.newest_step_s
    state.oldest_tokens = state.newest_tokens
    for position in range(state.num_running):
        request = running_of(state)[position]
        request.in_flight = NOT_IN_FLIGHT
        if request.num_scheduled_tokens > 0:
            request.in_flight = IN_FLIGHT if request.is_prefill_chunk else BRINGS_OUTPUT
        request.num_scheduled_tokens = 0


@compiled_part
def launch(state: Any, step_time_s: float) -> None:
    """Send the formed batch, which may be empty, to run behind the one in flight."""
    state.num_in_flight += 1
    state.newest_step_s = step_time_s
    state.newest_tokens = state.batch_tokens


@compiled_part
def is_stale(request: Any) -> bool:
    """Tell whether a waiting request still has a batch in flight."""
    return request.in_flight != NOT_IN_FLIGHT


@compiled_part
def awaits_token(state: Any) -> bool:
    """Tell whether a batch in flight brings the first running request an output token."""
    return running_of(state)[0].num_output_placeholders > 0


@compiled_part
def note_stale(state: Any, request: Any) -> None:
    """Remember a running request that is preempted while a batch of it is in flight."""
    request.num_output_placeholders = 0
    if request.in_flight != NOT_IN_FLIGHT:
        stale_of(state)[state.num_stale] = request.row
        state.num_stale += 1


@compiled_part
def land(state: Any) -> None:
    """Apply the outputs of the oldest batch in flight, whose time has passed.

    The caller has made a batch that flies alone the oldest (``make_room_for_batch``).
    """
    state.num_in_flight -= 1
    state.num_computed_tokens += state.oldest_tokens
    kept = 0
    for position in range(state.num_running):
        if not _receive_token(state, running_of(state)[position]):
            if kept < position:
                running_of(state)[kept] = running_of(state)[position]
            kept += 1
    state.num_running = kept
    for i in range(state.num_stale):
        row = stale_of(state)[i]
        if is_waiting(requests_of(state)[row]):
            _receive_stale_token(state, row)
    state.num_stale = 0


@compiled_part
def _receive_token(state: Any, request: Any) -> bool:
    """Take in what the oldest batch brings a running request; tell whether that ended it."""
    has_output = request.in_flight == BRINGS_OUTPUT
    request.in_flight = NOT_IN_FLIGHT
    if not has_output:
        return False
    request.num_output_placeholders -= 1
    append_tokens(state, request, 1, state.clock_s)
    state.num_output_tokens += 1
    state.progress_iteration = state.iteration
    if state.enable_prefix_caching:
        know_blocks(state, request, request.num_computed_tokens - request.num_scheduled_tokens)
    if request.num_output_tokens == request.stop_at_tokens:
        settle(state, request, FINISHED, requests_of(state)[request.row].stop_reason)
        return True
    return False


@compiled_part
def _receive_stale_token(state: Any, row: int) -> None:
    """Take in what the oldest batch brings a preempted request: it may end while it waits."""
    request = requests_of(state)[row]
    has_output = request.in_flight == BRINGS_OUTPUT
    request.in_flight = NOT_IN_FLIGHT
    if not has_output:
        return
    count_out(state, request)
    append_tokens(state, request, 1, state.clock_s)
    state.num_output_tokens += 1
    state.progress_iteration = state.iteration
    count_in(state, request)
    lengthen(state, row)
    if request.num_output_tokens == request.stop_at_tokens:
        take_out(state, row)
        end(state, request, FINISHED, request.stop_reason)
