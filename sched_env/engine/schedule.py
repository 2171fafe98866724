"""Form the batch of one iteration, by the rules of vLLM's scheduler.

There is no prefill phase and no decode phase: each request has tokens (prompt and outputs) and
computed tokens, and a batch brings the second towards the first (vllm/v1/core/sched/scheduler.py).
Running requests come first, then waiting ones, under three budgets: tokens of the batch
(``max_num_batched_tokens``), requests (``max_num_seqs``) and KV blocks (``num_blocks``).
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.admission import schedule_waiting
from sched_env.engine.batch import assign, close_batch, grow, open_batch, tokens_to_schedule
from sched_env.engine.cohort import schedule_cohort
from sched_env.engine.ending import end_running
from sched_env.engine.flight import awaits_token
from sched_env.engine.memory import running_of
from sched_env.engine.preemption import preempt, victim
from sched_env.engine.progress import break_livelock, drop_stuck_head
from sched_env.engine.records import KV_CAPACITY
from sched_env.engine.waiting import reorder


@compiled_part
def schedule(state: Any, key: Any) -> None:
    """Form a batch: running requests, then waiting ones.

    A step that preempted admits nobody, unless ``readmit_after_preemption`` (P07's rule; vLLM
    skips the waiting phase then).
    """
    break_livelock(state)
    open_batch(state)
    schedule_running(state, key, state.max_num_batched_tokens)
    if state.num_preempted_now == 0 or state.readmit_after_preemption:
        may_admit = state.num_running < state.max_num_active_seqs or state.preemptive_priority
        if not state.static_order and may_admit:
            reorder(state, key)
        schedule_waiting(state, key)
    close_batch(state)
    drop_stuck_head(state)


@compiled_part
def schedule_running(state: Any, key: Any, prefill_cap: int) -> None:
    """Give each running request its tokens, in order, preempting when blocks run short.

    A victim that stood earlier has its tokens withdrawn, so its budget is free again; a request
    that is its own victim is passed over. One that is alone and still cannot grow ends, but not
    before it has the token that is in flight for it.
    """
    position = schedule_cohort(state)
    while position < state.num_running and state.batch_tokens < state.max_num_batched_tokens:
        tokens = tokens_to_schedule(state, running_of(state)[position], prefill_cap)
        is_victim = False
        while tokens > 0 and not grow(state, running_of(state)[position], tokens):
            if state.num_running == 1:
                if not awaits_token(state):
                    end_running(state, position, KV_CAPACITY)
                return
            evicted = victim(state, key)
            preempt(state, key, evicted)
            is_victim = evicted == position
            if is_victim:
                break
            if evicted < position:
                position -= 1
        if is_victim:
            continue
        if tokens > 0:
            assign(state, running_of(state)[position], tokens)
        position += 1


@compiled_part
def admission_is_closed(state: Any) -> bool:
    """Tell whether more batches like this one would admit nobody, until something else happens.

    The queue is empty, all seats are taken, or the head did not fit: free blocks only shrink
    until a request ends. Keys that change with time may bring another head, prefill that is held
    back comes in its time, and with ``preemptive_priority`` the queue is asked anew each time.
    """
    if state.num_waiting == 0:
        return state.num_preempted_now == 0
    if state.num_preempted_now > 0 or state.preemptive_priority:
        return False
    if state.num_running >= state.max_num_active_seqs:
        return True
    return state.static_order and not state.defers_prefill
