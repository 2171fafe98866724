"""The batch of one iteration: what each request gets of it, and what it sums up to."""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.flight import make_room_for_batch
from sched_env.engine.memory import cost_of, requests_of, running_of
from sched_env.engine.pool import know_blocks, take_blocks
from sched_env.engine.records import NO_LIMIT
from sched_env.engine.sizes import blocks_to_grow, is_decoding, num_tokens, tokens_left


@compiled_part
def open_batch(state: Any) -> None:
    """Start an empty batch and settle what is held back from it."""
    if state.async_scheduling:
        make_room_for_batch(state)
    state.num_preempted_now = 0
    state.batch_tokens = 0
    state.batch_prefill_tokens = 0
    state.batch_decodes = 0
    state.batch_context_tokens = 0
    state.batch_attention = 0.0
    state.batch_moved_blocks = 0
    state.batch_has_prefill = 0
    state.chunk_cap = long_prefill_cap(state)
    state.defers_prefill = prefill_waits(state)


@compiled_part
def close_batch(state: Any) -> None:
    """Count a formed batch, and the last one with prefill (vLLM's ``last_prefill_step``)."""
    if state.batch_tokens > 0:
        state.num_executed_steps += 1
    if state.batch_has_prefill:
        state.last_prefill_step = state.num_executed_steps


@compiled_part
def long_prefill_cap(state: Any) -> int:
    """Return the most tokens that one request gets (``long_prefill_token_threshold``).

    A request that is alone takes what it needs. The adaptive threshold is at least an equal share
    of the batch among all live requests (vllm/v1/core/sched/scheduler.py, ``schedule``).
    """
    live = state.num_running + state.num_admitted + state.num_waiting
    if state.long_prefill_token_threshold == 0 or live <= 1:
        return int(NO_LIMIT)
    if state.long_prefill_token_threshold_adaptive:
        return max(state.long_prefill_token_threshold, state.max_num_batched_tokens // live)
    return state.long_prefill_token_threshold


@compiled_part
def never_fits_a_batch(state: Any, tokens: int) -> bool:
    """Tell whether ``tokens`` that have to be computed at once are more than any batch takes."""
    if state.enable_chunked_prefill or state.enable_prefix_caching:
        return False
    threshold, budget = state.long_prefill_token_threshold, state.max_num_batched_tokens
    return tokens > budget and (threshold == 0 or threshold > budget)


@compiled_part
def prefill_waits(state: Any) -> bool:
    """Tell whether prefill is held back (vLLM's ``prefill_schedule_interval``).

    It is for that many steps after the last one with prefill, while a request decodes, unless the
    last admission left requests waiting.
    """
    if state.prefill_schedule_interval <= 1 or state.prefill_capacity_bound:
        return False
    if state.num_executed_steps + 1 - state.last_prefill_step >= state.prefill_schedule_interval:
        return False
    num_chunks = 0
    for i in range(state.num_running):
        num_chunks += running_of(state)[i].is_prefill_chunk
    return num_chunks < state.num_running


@compiled_part
def tokens_wanted(state: Any, request: Any) -> int:
    """Return how many tokens a running request wants of the next batch, whatever its budget."""
    if state.async_scheduling and _ends_in_flight(state, request):
        return 0
    if state.defers_prefill and request.is_prefill_chunk:
        return 0
    return min(tokens_left(request), state.chunk_cap)


@compiled_part
def _ends_in_flight(state: Any, request: Any) -> bool:
    """Tell whether the batch in flight is known to bring the last token of a request."""
    if request.num_output_placeholders == 0:
        return False
    output_tokens = requests_of(state)[request.row].output_tokens
    longest = min(request.prompt_tokens + output_tokens, state.max_model_len)
    return num_tokens(request) + request.num_output_placeholders >= longest


@compiled_part
def tokens_to_schedule(state: Any, request: Any, prefill_cap: int) -> int:
    """Return how many tokens of ``request`` the batch can still take."""
    budget = state.max_num_batched_tokens - state.batch_tokens
    tokens = min(tokens_wanted(state, request), budget)
    if not is_decoding(request):
        tokens = min(tokens, prefill_cap - state.batch_prefill_tokens)
    return max(tokens, 0)


@compiled_part
def grow(state: Any, request: Any, tokens: int) -> bool:
    """Take the blocks that ``tokens`` more computed tokens need; take none if too few are free."""
    need = blocks_to_grow(request, tokens, state.block_size)
    if need > state.free_blocks:
        return False
    take_blocks(state, request, need)
    return True


@compiled_part
def assign(state: Any, request: Any, tokens: int) -> None:
    """Put ``tokens`` of ``request`` into the batch and count what the step-time model needs."""
    if is_decoding(request):
        state.batch_decodes += 1
        state.batch_context_tokens += request.num_computed_tokens + 1
    else:
        state.batch_prefill_tokens += tokens
        state.batch_attention += _attention(cost_of(state), request.num_computed_tokens, tokens)
    if request.is_prefill_chunk:
        state.batch_has_prefill = 1
    state.batch_tokens += tokens
    request.num_scheduled_tokens = tokens
    request.num_computed_tokens += tokens
    request.is_prefill_chunk = tokens_left(request) > 0
    if state.async_scheduling and not request.is_prefill_chunk:
        request.num_output_placeholders += 1
    if state.enable_prefix_caching:
        know_blocks(state, request, min(request.num_computed_tokens, num_tokens(request)))


@compiled_part
def _attention(cost: Any, past: int, chunk: int) -> float:
    return max(chunk, cost.mixed_min_chunk_tokens) * (past + 0.5 * chunk)


@compiled_part
def withdraw(state: Any, request: Any) -> None:
    """Take a request out of the batch again."""
    tokens = request.num_scheduled_tokens
    if state.async_scheduling and not request.is_prefill_chunk:
        request.num_output_placeholders -= 1
    request.num_scheduled_tokens = 0
    request.num_computed_tokens -= tokens
    state.batch_tokens -= tokens
    if is_decoding(request):
        state.batch_decodes -= 1
        state.batch_context_tokens -= request.num_computed_tokens + 1
    else:
        state.batch_prefill_tokens -= tokens
        state.batch_attention -= _attention(cost_of(state), request.num_computed_tokens, tokens)
