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
from sched_env.engine.memory import admitted_of, cost_of, requests_of, running_of
from sched_env.engine.pool import cached_blocks
from sched_env.engine.sizes import (
    blocks_to_grow,
    decode_tokens_left,
    is_decoding,
    is_next_decode,
    tokens_left,
)


@compiled_part
def read_ledger(state: Any) -> None:
    """Count what the running requests and those admitted so far will take, prefill in full."""
    running, block_size = running_of(state), state.block_size
    state.chunk_cap = long_prefill_cap(state)
    state.defers_prefill = prefill_waits(state)
    position, blocks, context, at_risk, predicted, actual = _read_decodes(state)
    budget, prefill, num_decoding = state.max_num_batched_tokens - position, 0, position
    for i in range(position, state.num_running):
        request = running[i]
        outputs = request.num_output_tokens
        tokens = min(tokens_wanted(state, request), budget)
        blocks -= blocks_to_grow(request, tokens, block_size)
        budget -= tokens
        predicted += decode_tokens_left(request)
        actual += request.stop_at_tokens - outputs
        if is_decoding(request):
            num_decoding += 1
            context += request.prompt_tokens + outputs
            at_risk += tpot_slack_s(state, request) < 0.0
        else:
            prefill += tokens
    state.ledger_blocks = blocks
    state.ledger_tokens = budget
    state.ledger_prefill_tokens = prefill
    state.num_decoding = num_decoding
    state.decode_context_tokens = context
    state.decodes_at_risk = at_risk
    state.running_decode_tokens = predicted
    state.true_decode_tokens = actual
    state.ledger_reserved = reserved_blocks(state)
    for i in range(state.num_admitted):
        _enter(state, requests_of(state)[admitted_of(state)[i]])
    _estimate_steps(state)


@compiled_part
def _read_decodes(state: Any) -> tuple[int, int, int, int, float, int]:
    """Count the decodes that stand first, and what they take of blocks and have left to do.

    It is what the rules come to for a decode, which wants one token. Nothing is written and the
    processor has nothing to foresee, for most requests of most servers are decodes.
    """
    running, block_size = running_of(state), state.block_size
    blocks, context, at_risk, predicted, actual = state.free_blocks, 0, 0, 0.0, 0
    position, most = 0, min(state.num_running, state.max_num_batched_tokens)
    if state.async_scheduling:
        most = 0
    while position < most and is_next_decode(running[position]):
        seat = running[position]
        outputs = seat.num_output_tokens
        blocks -= seat.num_computed_tokens == seat.num_blocks * block_size
        context += seat.prompt_tokens + outputs
        at_risk += tpot_slack_s(state, seat) < 0.0
        predicted += decode_tokens_left(seat)
        actual += seat.stop_at_tokens - outputs
        position += 1
    return position, blocks, context, at_risk, predicted, actual


@compiled_part
def charge_admission(state: Any, request: Any) -> None:
    """Charge the ledger with a request that was chosen to run."""
    _enter(state, request)
    _estimate_steps(state)


@compiled_part
def _enter(state: Any, request: Any) -> None:
    """Charge the ledger with the prefill of an admitted request."""
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
def _estimate_steps(state: Any) -> None:
    """Estimate the next step's time with decodes only and with all prefill."""
    decodes, context = state.num_decoding, state.decode_context_tokens
    state.next_decode_s = step_time_s(cost_of(state), decodes, context, 0, 0.0, decodes)
    prefill = state.ledger_prefill_tokens
    attention = 0.5 * prefill * prefill
    state.next_full_s = step_time_s(
        cost_of(state), decodes, context, prefill, attention, decodes + 1
    )


@compiled_part
def tpot_slack_s(state: Any, request: Any) -> float:
    """Return how far a decoding request is ahead (+) or behind (-) its TPOT SLO, in seconds."""
    allowed_s = request.tpot_slo_s * request.num_output_tokens
    return allowed_s - (state.clock_s - request.first_token_s)
