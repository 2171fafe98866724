"""The cohort: decodes that stand first, and get one token each in every iteration.

Most running requests of most servers only decode. What an iteration does to them is the same for
all, so it is done to all at once: the tokens that each has been given stand in one number of the
server, and a seat of the cohort tells how far its request is beside that number. What the batch and
the ledger ask of them are sums that go on with it. So an iteration costs as much for 64 decodes as
for one; seats are looked at one by one only when a request joins or leaves.

A request joins as soon as it stands behind the cohort and decodes (:func:`line_up`), and leaves
when it ends or is preempted (:func:`step_out`). Where their blocks run short, or somebody else
wants to read the seats, all fall out (:func:`fall_out`) and are running requests like others; which
of them are in the cohort changes no outcome. Rules that look at each block or at batches in flight
(prefix caching, asynchronous scheduling) have none.
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_inline, compiled_part
from sched_env.engine.memory import growth_of, running_of
from sched_env.engine.records import NO_LIMIT
from sched_env.engine.sizes import blocks_for, is_next_decode, num_tokens, tokens_left

_MOST_TOKENS = 2**30
"""A seat counts in 32 bits: a cohort that has been given more falls out before others join."""


@compiled_part
def empty_cohort(state: Any) -> None:
    """Begin a cohort without members."""
    state.cohort_size = 0
    state.cohort_tokens = 0
    state.cohort_is_scheduled = 0
    state.cohort_token_s = 0.0
    state.cohort_ends_at_tokens = NO_LIMIT
    state.cohort_context_tokens = 0
    state.cohort_left_tokens = 0
    state.cohort_place = 0
    growth_of(state)[:] = 0


@compiled_part
def line_up(state: Any) -> None:
    """Let the decodes that stand behind the cohort join it, between two batches.

    One that got no token when the cohort did waits until both do.
    """
    if state.async_scheduling or state.enable_prefix_caching:
        return
    if state.cohort_tokens > _MOST_TOKENS:
        fall_out(state)
    most = min(state.num_running, state.max_num_batched_tokens)
    while state.cohort_size < most and is_next_decode(running_of(state)[state.cohort_size]):
        seat = running_of(state)[state.cohort_size]
        if state.cohort_size == 0:
            empty_cohort(state)
            state.cohort_token_s = seat.last_token_s
        elif seat.last_token_s != state.cohort_token_s:
            return
        _join(state, seat)


@compiled_part
def _join(state: Any, seat: Any) -> None:
    growth_of(state)[_place_of_growth(state, seat)] += 1
    state.cohort_context_tokens += num_tokens(seat)
    state.cohort_left_tokens += seat.stop_at_tokens - seat.num_output_tokens
    seat.num_output_tokens -= state.cohort_tokens
    seat.num_computed_tokens -= state.cohort_tokens
    state.cohort_ends_at_tokens = min(state.cohort_ends_at_tokens, _ends_at_tokens(seat))
    state.cohort_size += 1


@compiled_part
def _place_of_growth(state: Any, seat: Any) -> int:
    """Return where ``growth_of`` counts a request, whose seat tells all, as one to need a block.

    Its last block always holds a token, so there is room for less than a block.
    """
    room = seat.num_blocks * state.block_size - seat.num_computed_tokens
    place = state.cohort_place + room
    return place if place < state.block_size else place - state.block_size


@compiled_part
def _ends_at_tokens(seat: Any) -> int:
    """Return after how many tokens of its cohort a member gets to its last one."""
    return seat.stop_at_tokens - seat.num_output_tokens


@compiled_part
def schedule_cohort(state: Any) -> int:
    """Give each of the cohort a token of the batch, which is empty; return how many they are.

    Where too few blocks are free for all of them they fall out, and none has got any.
    """
    line_up(state)
    if state.cohort_size == 0:
        return 0
    need = blocks_for_next_token(state)
    if need > state.free_blocks:
        fall_out(state)
        return 0
    state.free_blocks -= need
    state.cohort_place = place_after(state, state.cohort_place)
    state.cohort_is_scheduled = 1
    state.batch_decodes = state.cohort_size
    state.batch_tokens = state.cohort_size
    state.batch_context_tokens = state.cohort_context_tokens
    return state.cohort_size


@compiled_part
def blocks_for_next_token(state: Any) -> int:
    """Return how many of the cohort need a block for their next token."""
    return growth_of(state)[state.cohort_place]


@compiled_part
def place_after(state: Any, place: int) -> int:
    """Return where ``growth_of`` counts who needs a block for the token after that of ``place``."""
    return place + 1 if place + 1 < state.block_size else 0


@compiled_part
def advance(state: Any, iterations: int) -> None:
    """Give the cohort, which was scheduled, the output tokens of so many batches."""
    tokens = state.cohort_size * iterations
    state.cohort_tokens += iterations
    state.cohort_context_tokens += tokens
    state.cohort_left_tokens -= tokens
    state.cohort_token_s = state.clock_s
    state.cohort_is_scheduled = 0


@compiled_part
def has_last_token(state: Any, position: int) -> bool:
    """Tell whether a member has all its output tokens."""
    return _ends_at_tokens(running_of(state)[position]) == state.cohort_tokens


@compiled_part
def step_out(state: Any, position: int) -> None:
    """Let a request, if it is in the cohort, out of it: its seat tells all. It must leave that."""
    if position >= state.cohort_size:
        return
    seat = running_of(state)[position]
    ended_at = _ends_at_tokens(seat)
    _catch_up(state, seat)
    growth_of(state)[_place_of_growth(state, seat)] -= 1
    state.cohort_context_tokens -= num_tokens(seat)
    state.cohort_left_tokens -= seat.stop_at_tokens - seat.num_output_tokens
    if ended_at == state.cohort_ends_at_tokens:
        state.cohort_ends_at_tokens = _next_end(state, position)
    state.cohort_size -= 1


@compiled_part
def _next_end(state: Any, left_out: int) -> int:
    """Return after how many tokens the first member ends, but for one."""
    first = int(NO_LIMIT)
    for i in range(state.cohort_size):
        if i != left_out:
            first = min(first, _ends_at_tokens(running_of(state)[i]))
    return first


@compiled_part
def fall_out(state: Any) -> None:
    """Let all out of the cohort: each seat tells all of its request."""
    for i in range(state.cohort_size):
        _catch_up(state, running_of(state)[i])
    empty_cohort(state)


@compiled_part
def as_it_stands(state: Any, position: int) -> Any:
    """Return a seat that tells all of a running request; one of the cohort is copied, to be read.

    The copy lies in the spare seat, until that is needed again.
    """
    seats = running_of(state)
    if position >= state.cohort_size:
        return seats[position]
    seats[state.seat_capacity] = seats[position]
    copy = seats[state.seat_capacity]
    _catch_up(state, copy)
    return copy


@compiled_inline
def progress_of(state: Any, position: int) -> tuple[int, int, int, int]:
    """Return how far a running request is, where no batch is formed.

    Returns:
        Tokens left to compute, output tokens, computed tokens, blocks.
    """
    seat = running_of(state)[position]
    outputs, computed = seat.num_output_tokens, seat.num_computed_tokens
    if position >= state.cohort_size:
        return tokens_left(seat), outputs, computed, seat.num_blocks
    computed += state.cohort_tokens
    return 1, outputs + state.cohort_tokens, computed, blocks_for(computed, state.block_size)


@compiled_part
def _catch_up(state: Any, seat: Any) -> None:
    """Write into the seat of a member what it has been given with the others."""
    scheduled = state.cohort_is_scheduled
    seat.num_output_tokens += state.cohort_tokens
    seat.num_computed_tokens += state.cohort_tokens + scheduled
    seat.num_blocks = blocks_for(seat.num_computed_tokens, state.block_size)
    seat.num_scheduled_tokens = scheduled
    seat.last_token_s = state.cohort_token_s
