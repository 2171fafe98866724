"""The teaching machine: one request advances by one step at a time.

A request is prefilled in one step and then decodes one token a step. While it is admitted it holds
all the KV blocks that it requires; preemption takes them away and leaves phase and progress. The
functions work on a MACHINE record (or one that extends it) and on DECODE_REQUEST records, and are
called by the simulator for scripts, the environments and the search for the optimum alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.compiled import compiled
from sched_env.engine.aging import aged_priority
from sched_env.engine.records import FINISHED, PREEMPTED, RUNNING

PREFILL, DECODE = range(2)
PHASE_NAMES = ("prefill", "decode")

FIXED_PRIORITY, AGING, DEADLINE = range(3)
POLICY_NAMES = ("fixed_priority", "aging", "deadline")

# What a step did.
PREFILL_TO_DECODE, DECODE_ONE_STEP, FINISH = range(3)
ADVANCE_NAMES = ("prefill_to_decode", "decode_one_step", "finish")

NONE = -1
"""Stands for no request where a row is expected."""

AMPLE_SLACK = 1_000_000_000
"""Slack of a request without a deadline, and of every request where deadlines set no order."""

DECODE_REQUEST = np.dtype(
    [
        ("request_id", "i8"),
        ("prompt_len", "i8"),
        ("max_new_tokens", "i8"),
        ("generated_len", "i8"),
        ("priority", "i8"),  # larger is served first
        ("wait_steps", "i8"),  # steps that went to others; never reset
        ("required_blocks", "i8"),
        ("preemptions", "i8"),
        ("deadline_step", "i8"),  # of no meaning unless has_deadline
        ("arrival_step", "i8"),
        ("phase", "i1"),
        ("status", "i1"),  # as in `sched_env.engine.records`
        ("cache_hit", "i1"),
        ("admitted", "i1"),  # holds its blocks
        ("has_deadline", "i1"),
        ("preemptible", "i1"),
        ("missed", "i1"),  # its deadline could no longer be met
    ],
    align=True,
)

MACHINE_FIELDS = [
    ("clock", "i8"),  # steps taken
    ("free_kv_blocks", "i8"),
    ("aging_interval", "i8"),  # waited steps that are worth one level of priority
    ("policy", "i8"),
]

MACHINE = np.dtype(MACHINE_FIELDS, align=True)


@compiled
def is_done(request: Any) -> bool:
    """Tell whether all output tokens are there."""
    return request.generated_len >= request.max_new_tokens


@compiled
def remaining_steps(request: Any) -> int:
    """Return the steps until the request is done if it gets all of them."""
    tokens = max(request.max_new_tokens - request.generated_len, 0)
    return tokens + 1 if request.phase == PREFILL else tokens


@compiled
def effective_priority(machine: Any, request: Any) -> int:
    """Return the priority, raised by what it waited under the aging policy."""
    if machine.policy == AGING:
        return aged_priority(request.priority, request.wait_steps, machine.aging_interval)
    return request.priority


@compiled
def deadline_slack(machine: Any, request: Any) -> int:
    """Return the steps that it can still lose and meet its deadline; negative: too late."""
    return request.deadline_step - machine.clock - remaining_steps(request)


@compiled
def is_late(machine: Any, request: Any) -> bool:
    """Tell whether its deadline cannot be met any more, whoever gets the next steps."""
    return request.has_deadline != 0 and deadline_slack(machine, request) < 0


@compiled
def schedule_key(machine: Any, request: Any) -> tuple[int, int, int, int, int, int]:
    """Return the key of the service order, smaller first.

    Slack (under the deadline policy), prefill before decode, cache hit before miss, effective
    priority, total length, id.
    """
    slack = AMPLE_SLACK
    if machine.policy == DEADLINE and request.has_deadline:
        slack = deadline_slack(machine, request)
    return (
        slack,
        0 if request.phase == PREFILL else 1,
        0 if request.cache_hit else 1,
        -effective_priority(machine, request),
        request.prompt_len + request.generated_len,
        request.request_id,
    )


@compiled
def service_order(machine: Any, requests: Any) -> Any:
    """Return the rows of unfinished requests in service order, int64 (count,)."""
    keys = np.empty((requests.size, 6), np.int64)
    order = np.empty(requests.size, np.int64)
    count = 0
    for row in range(requests.size):
        if is_done(requests[row]):
            continue
        key = schedule_key(machine, requests[row])
        for part in range(6):
            keys[row, part] = key[part]
        place = count
        while place > 0 and _is_smaller(keys[row], keys[order[place - 1]]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = row
        count += 1
    return order[:count]


@compiled
def _is_smaller(key: Any, other: Any) -> bool:
    for part in range(key.size):
        if key[part] != other[part]:
            return key[part] < other[part]
    return False


@compiled
def admit(machine: Any, request: Any) -> None:
    """Give a request its blocks."""
    machine.free_kv_blocks -= request.required_blocks
    request.admitted = 1


@compiled
def preempt(machine: Any, request: Any) -> None:
    """Take the blocks of an admitted request; it keeps phase and progress."""
    machine.free_kv_blocks += request.required_blocks
    request.admitted = 0
    request.status = PREEMPTED
    request.preemptions += 1


@compiled
def find_victim(machine: Any, requests: Any, challenger: int) -> int:
    """Return the row of the request to preempt for another one, or `NONE`.

    It is admitted, unfinished, preemptible and of strictly lower effective priority, and its blocks
    alone suffice; of several, the one of lowest priority, most blocks, smallest id.
    """
    urgency = effective_priority(machine, requests[challenger])
    lacking = requests[challenger].required_blocks - machine.free_kv_blocks
    victim = NONE
    lowest = (0, 0, 0)
    for row in range(requests.size):
        request = requests[row]
        if not request.admitted or not request.preemptible or is_done(request):
            continue
        priority = effective_priority(machine, request)
        if priority >= urgency or request.required_blocks < lacking:
            continue
        place = (priority, -request.required_blocks, request.request_id)
        if victim == NONE or place < lowest:
            victim, lowest = row, place
    return victim


@compiled
def ensure_capacity(machine: Any, requests: Any, challenger: int) -> int:
    """Admit a request if it can be, preempting at most one other.

    Returns:
        The row that was preempted, or `NONE`.
    """
    request = requests[challenger]
    victim = NONE
    if not request.admitted and request.required_blocks > machine.free_kv_blocks:
        victim = find_victim(machine, requests, challenger)
        if victim == NONE:
            return NONE
        preempt(machine, requests[victim])
    if not request.admitted:
        admit(machine, request)
    request.status = RUNNING
    return victim


@compiled
def advance(machine: Any, requests: Any, chosen: int) -> int:
    """Give an admitted request one step, in which every other unfinished one waits.

    Returns:
        What the step did: `PREFILL_TO_DECODE`, `DECODE_ONE_STEP` or `FINISH`.
    """
    for row in range(requests.size):
        if row != chosen and not is_done(requests[row]):
            requests[row].wait_steps += 1
    machine.clock += 1
    request = requests[chosen]
    if request.phase == PREFILL:
        request.phase = DECODE
        return PREFILL_TO_DECODE
    request.generated_len += 1
    if not is_done(request):
        return DECODE_ONE_STEP
    machine.free_kv_blocks += request.required_blocks
    request.admitted = 0
    request.status = FINISHED
    return FINISH


@compiled
def serve(machine: Any, requests: Any, order: Any) -> tuple[int, int, int]:
    """Give one step to the first request of an order that can be admitted.

    Args:
        machine: MACHINE.
        requests: DECODE_REQUEST (num_requests,).
        order: Rows in service order, int64 (count,).

    Returns:
        Rows of the request that was served and of the one preempted for it (`NONE` each: there
        was none), and what the step did.
    """
    for place in range(order.size):
        row = order[place]
        victim = ensure_capacity(machine, requests, row)
        if requests[row].admitted:
            return row, victim, advance(machine, requests, row)
    return NONE, NONE, PREFILL_TO_DECODE


@compiled
def serve_in(machines: Any, requests: Any, order: Any) -> tuple[int, int, int, bool]:
    """Do as `serve` in machine 0, and tell whether the one that was served is late.

    From Python, arrays cross into compiled code faster than records do.
    """
    row, victim, action = serve(machines[0], requests, order)
    return row, victim, action, row != NONE and is_late(machines[0], requests[row])


@compiled
def serve_next(machines: Any, requests: Any) -> tuple[int, int, int, bool]:
    """Do as `serve_in`, in the service order of the machine's policy."""
    return serve_in(machines, requests, service_order(machines[0], requests))
