"""The decision process: when one is asked, and what a choice does.

All decisions come at a frozen clock, before the scheduler forms its batch by the unchanged rules
on the order that was chosen. What still fits ``ledger.py`` tells, what may be chosen
``legality.py``. An action is one of

- *proceed* at prefill level l: prefill tokens of this iteration are capped at that part of
  ``max_num_batched_tokens``;
- *admit* waiting slot k;
- *preempt* running slot j (slot 0 is the last of the batch order).
"""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.admission import admit, fits
from sched_env.engine.arrivals import expire, receive
from sched_env.engine.batch import close_batch, open_batch, tokens_to_schedule
from sched_env.engine.ending import end_running
from sched_env.engine.execute import complete, end_oldest_batch, execute
from sched_env.engine.flight import awaits_token
from sched_env.engine.layout import FULL_LEVEL, NUM_LEVELS
from sched_env.engine.ledger import charge_admission, read_ledger, tokens_to_prefill
from sched_env.engine.legality import first_legal, legal_actions, prefill_cap
from sched_env.engine.memory import (
    admitted_of,
    mask_of,
    requests_of,
    running_of,
    waiter_at,
)
from sched_env.engine.preemption import preempt
from sched_env.engine.prefetch import (
    fetch_cell,
    fetch_coming,
    fetch_free_cell,
    fetch_next_waiting,
    fetch_request,
)
from sched_env.engine.progress import break_livelock, drop_stuck_head
from sched_env.engine.records import KV_CAPACITY
from sched_env.engine.reward import settle_waiting
from sched_env.engine.schedule import schedule_running
from sched_env.engine.sizes import is_decoding
from sched_env.engine.waiting import dequeue, enqueue


@compiled_part
def open_iteration(state: Any, key: Any) -> None:
    """Bring the world to the next point of decision: arrivals, deadlines, order, ledger.

    Where nothing is left to run, the clock moves on to the next arrival; past the last one the
    run is terminated, past the horizon truncated. The last ledger is what the final observation
    shows.
    """
    while not (state.terminated or state.truncated):
        if state.clock_s >= state.horizon_s:
            state.truncated = 1
            break
        receive(state, key)
        expire(state)
        if state.num_running == 0 and state.num_waiting == 0:
            _idle(state)
            continue
        if state.batch_prefill_tokens > 0:
            put_decodes_first(state)  # only a batch with prefill makes a request decode
        break_livelock(state)
        read_ledger(state)
        if is_stuck(state):
            _end_stuck(state)
            continue
        state.num_evicted_now = 0
        state.deciding = 1
        return
    state.num_fitting = 0
    put_decodes_first(state)
    read_ledger(state)


@compiled_part
def is_stuck(state: Any) -> bool:
    """Tell whether a request is alone and cannot grow, whatever is decided."""
    return state.ledger_blocks < 0 and state.num_running == 1 and state.num_admitted == 0


@compiled_part
def _end_stuck(state: Any) -> None:
    """End the request that is stuck; one for which a token is in flight gets that first."""
    if awaits_token(state):
        end_oldest_batch(state)
    else:
        end_running(state, 0, KV_CAPACITY)


@compiled_part
def _idle(state: Any) -> None:
    if state.num_in_flight > 0:
        end_oldest_batch(state)
    elif state.next_arrival_s == math.inf:
        state.terminated = 1
    else:
        settle_waiting(state)
        state.clock_s = min(state.next_arrival_s, state.horizon_s)


@compiled_part
def put_decodes_first(state: Any) -> None:
    """Order the running requests: decoding ones first, each group as it was."""
    num_decoding = state.cohort_size
    for position in range(num_decoding, state.num_running):
        if not is_decoding(running_of(state)[position]):
            continue
        if num_decoding < position:
            seats, spare = running_of(state), state.seat_capacity
            seats[spare] = seats[position]
            for i in range(position, num_decoding, -1):
                seats[i] = seats[i - 1]
            seats[num_decoding] = seats[spare]
        num_decoding += 1


@compiled_part
def apply(state: Any, key: Any, action: int) -> None:
    """Do a legal action."""
    if action < NUM_LEVELS:
        _proceed(state, key, action)
    elif action < NUM_LEVELS + state.num_waiting_slots:
        _choose(state, action - NUM_LEVELS)
    else:
        position = state.num_running - 1 - (action - NUM_LEVELS - state.num_waiting_slots)
        fetch_request(state, running_of(state)[position].row)
        fetch_free_cell(state)
        preempt(state, key, position)
        state.num_evicted_now += 1
        read_ledger(state)
        while is_stuck(state):
            _end_stuck(state)
            read_ledger(state)


@compiled_part
def _choose(state: Any, slot: int) -> None:
    """Admit a waiting slot: it will run behind those chosen before it."""
    row = waiter_at(state, slot).row
    fetch_request(state, row)
    fetch_cell(state, slot)
    fetch_next_waiting(state)
    request = requests_of(state)[row]
    admitted_of(state)[state.num_admitted] = row
    state.num_admitted += 1
    request.moved_at_iteration = state.iteration
    dequeue(state, slot)
    charge_admission(state, request)


@compiled_part
def _proceed(state: Any, key: Any, level: int) -> None:
    """Form the batch and run it; as many times as nobody would be asked, if it may jump.

    The batch of a live server runs elsewhere, until :func:`end_measured_batch`.
    """
    _fetch_batch(state)
    cap = prefill_cap(state, level)
    nothing_new = state.num_admitted == 0 and state.num_evicted_now == 0
    may_jump = nothing_new and state.num_fitting == 0 and not state.defers_prefill
    state.news = 0
    state.deciding = 0
    open_batch(state)
    schedule_running(state, key, cap)
    for i in range(state.num_admitted):
        request = requests_of(state)[admitted_of(state)[i]]
        tokens = _first_chunk(state, request, cap)
        if tokens > 0:
            admit(state, request, tokens)
        else:
            enqueue(state, key, request)
    state.num_admitted = 0
    close_batch(state)
    if state.num_evicted_now == 0:
        drop_stuck_head(state)
    if state.live and state.batch_tokens > 0:
        state.measuring = 1
    else:
        execute(state, may_jump, state.horizon_s)


@compiled_part
def _fetch_batch(state: Any) -> None:
    """Ask for what lies apart and an iteration will look at: who is admitted, who comes next."""
    for i in range(state.num_admitted):
        fetch_request(state, admitted_of(state)[i])
    fetch_coming(state)


@compiled_part
def _first_chunk(state: Any, request: Any, cap: int) -> int:
    """Return the tokens of an admitted request that the batch takes under a prefill cap."""
    if not state.enable_prefix_caching:
        return tokens_to_schedule(state, request, cap)
    tokens = tokens_to_prefill(state, request)
    tokens = min(tokens, state.max_num_batched_tokens - state.batch_tokens)
    tokens = min(tokens, cap - state.batch_prefill_tokens)
    others_run = state.num_running > 0
    has_room = tokens > 0 and fits(state, request, tokens, state.free_blocks, others_run)
    return tokens if has_room else 0


@compiled_part
def settle_decisions(state: Any, key: Any) -> None:
    """Go on until there are two legal actions or more, or the run has ended; fill the mask.

    A sole legal action is applied unasked. A batch whose time is being measured stops it too.
    """
    while not state.measuring:
        if not state.deciding:
            open_iteration(state, key)
        count = legal_actions(state)
        if count > 1 or state.terminated or state.truncated:
            return
        apply(state, key, first_legal(state))


@compiled_part
def end_measured_batch(state: Any, key: Any, step_time_s: float) -> None:
    """End the batch of a live server after its measured time, and go on as after any other."""
    state.measuring = 0
    complete(state, step_time_s)
    settle_decisions(state, key)
    if not state.measuring:
        settle_waiting(state)


@compiled_part
def step(state: Any, key: Any, action: int) -> None:
    """Take one decision and go on to the next one.

    The mask holds the legal actions before and after. An illegal action is counted and replaced
    by full proceed, or by the lowest legal action where that is illegal too.
    """
    state.reward = 0.0
    state.step_start_s = state.clock_s
    state.waiting_since_s = state.clock_s
    state.decisions += 1
    state.invalid_actions = 0
    mask = mask_of(state)
    if action < 0 or action >= mask.size or mask[action] == 0:
        state.invalid_actions = 1
        action = FULL_LEVEL if mask[FULL_LEVEL] else first_legal(state)
    if state.terminated or state.truncated:
        return
    apply(state, key, action)
    settle_decisions(state, key)
    if not state.measuring:
        settle_waiting(state)
