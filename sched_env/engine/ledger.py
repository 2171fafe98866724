"""The ledger of decisions: what the coming batch will take, and what it leaves free.

All prefill is counted as allowed. It holds what the running requests will take of blocks and
tokens, and what those take that are admitted and not scheduled yet.
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.cost.step_time import step_time_s
from sched_env.engine.admission import reserved_blocks, still_needed
from sched_env.engine.batch import long_prefill_cap, prefill_waits, tokens_wanted
from sched_env.engine.cohort import blocks_for_next_token, line_up
from sched_env.engine.memory import admitted_of, cost_of, requests_of, running_of
from sched_env.engine.pool import cached_blocks
from sched_env.engine.sizes import (
    blocks_to_grow,
    decode_tokens_left,
    is_decoding,
    num_tokens,
    predicted_beyond,
    tokens_left,
)


@compiled_part
def read_ledger(state: Any) -> None:
    """Count what the running requests and those admitted so far will take, prefill in full."""
    line_up(state)
    running, block_size, num_members = running_of(state), state.block_size, state.cohort_size
    state.chunk_cap = long_prefill_cap(state)
    state.defers_prefill = prefill_waits(state)
    blocks, budget = state.free_blocks, state.max_num_batched_tokens - num_members
    prefill, num_decoding, context, actual = 0, num_members, 0, 0
    if num_members > 0:
        blocks -= blocks_for_next_token(state)
        context, actual = state.cohort_context_tokens, state.cohort_left_tokens
    for i in range(num_members, state.num_running):
        request = running[i]
        tokens = min(tokens_wanted(state, request), budget)
        blocks -= blocks_to_grow(request, tokens, block_size)
        budget -= tokens
        actual += request.stop_at_tokens - request.num_output_tokens
        if is_decoding(request):
            num_decoding += 1
            context += num_tokens(request)
        else:
            prefill += tokens
    state.ledger_blocks = blocks
    state.ledger_tokens = budget
    state.ledger_prefill_tokens = prefill
    state.num_decoding = num_decoding
    state.decode_context_tokens = context
    state.true_decode_tokens = actual
    state.ledger_reserved = reserved_blocks(state)
    for i in range(state.num_admitted):
        charge_admission(state, requests_of(state)[admitted_of(state)[i]])


@compiled_part
def charge_admission(state: Any, request: Any) -> None:
    """Charge the ledger with the prefill of a request that was chosen to run."""
    tokens = min(tokens_to_prefill(state, request), state.ledger_tokens)
    state.ledger_blocks -= blocks_to_grow(request, tokens, state.block_size)
    state.ledger_reserved += still_needed(state, request)
    state.ledger_tokens -= tokens
    state.ledger_prefill_tokens += tokens


@compiled_part
def tokens_to_prefill(state: Any, request: Any) -> int:
    """Return how many tokens of a waiting request one batch would take, whatever its budget."""
    left = tokens_left(request) - cached_blocks(state, request) * state.block_size
    return min(left, state.chunk_cap)


@compiled_part
def next_step_s(state: Any) -> tuple[float, float]:
    """Estimate the next step's time, in seconds: with decodes only, and with all prefill."""
    decodes, context = state.num_decoding, state.decode_context_tokens
    prefill = state.ledger_prefill_tokens
    attention = 0.5 * prefill * prefill
    decode_step_s = step_time_s(cost_of(state), decodes, context, 0, 0.0, decodes)
    full_step_s = step_time_s(cost_of(state), decodes, context, prefill, attention, decodes + 1)
    return decode_step_s, full_step_s


@compiled_part
def paces(state: Any) -> tuple[float, int]:
    """Return the predicted output tokens that running requests have to come, and the late decodes.

    Those are behind their TPOT SLO.
    """
    running, clock_s, num_members = running_of(state), state.clock_s, state.cohort_size
    predicted, num_late = 0.0, 0
    for i in range(num_members):
        seat = running[i]
        outputs = seat.num_output_tokens + state.cohort_tokens
        predicted += predicted_beyond(seat, outputs)
        num_late += tpot_slack_s(clock_s, seat, outputs) < 0.0
    for i in range(num_members, state.num_running):
        seat = running[i]
        slack_s = tpot_slack_s(clock_s, seat, seat.num_output_tokens)
        predicted += decode_tokens_left(seat)
        num_late += is_decoding(seat) and slack_s < 0.0
    return predicted, num_late


@compiled_part
def tpot_slack_s(clock_s: float, request: Any, outputs: int) -> float:
    """Return how many seconds a request is ahead (+) of its TPOT SLO or behind (-) it.

    Args:
        clock_s: Now.
        request: It has its first token.
        outputs: Its output tokens so far.
    """
    return request.tpot_slo_s * outputs - (clock_s - request.first_token_s)
