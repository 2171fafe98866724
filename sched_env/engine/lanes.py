"""Lanes: the head of a queue whose order changes with time, without sorting it anew.

Time changes most orders between kinds of requests alone: under aging, those of one priority stay in
the order of their arrival for ever. A heuristic may name the lane of a request; those of one lane
have to keep the order of their arrival for as long as they wait. Then the head of the queue is the
best of the first ones of all lanes, whatever lies behind them: it costs one key for each lane. A
request that arrives joins its lane at the end; a preempted one is put before all that arrived after
it, behind the few that were preempted too and arrived before it.

Where there are more lanes than there is room for, the queue is sorted instead from then on.

The entry of ``backlog`` at a request's row holds who follows it in its lane (``row``), and how
often the queue had been put in order when it began to wait (``tie``).
"""

from __future__ import annotations

from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.fair_share import count_running, lift
from sched_env.engine.heap import precedes
from sched_env.engine.keycall import key_at
from sched_env.engine.memory import backlog_of, lanes_of, requests_of
from sched_env.engine.queue_records import MOST_LANES
from sched_env.engine.records import PREEMPTED, WAITING

NO_ROW = -1


@compiled_part
def empty_lanes(state: Any) -> None:
    """Make a queue without requests one of lanes, if its order has some."""
    state.has_lanes = state.may_have_lanes
    state.num_lanes = 0
    state.num_passes = 0


@compiled_part
def note_wait(state: Any, row: int) -> None:
    """Note that a request begins to wait."""
    backlog_of(state)[row].tie = state.num_passes


@compiled_part
def join_lane(state: Any, request: Any) -> bool:
    """Put a waiting request into its lane; tell whether there was room for its lane."""
    lanes, links, row = lanes_of(state), backlog_of(state), request.row
    value, _ = key_at(state.lane_key_at, state.lane_key_jit_at)(request, state.clock_s)
    place = 0
    while place < state.num_lanes and lanes[place].value != value:
        place += 1
    if place == MOST_LANES:
        return False
    lane = lanes[place]
    if place == state.num_lanes:
        state.num_lanes += 1
        lane.value = value
        lane.first = lane.last = row
        links[row].row = NO_ROW
    elif _arrived_before(state, row, lane.first):
        links[row].row = lane.first
        lane.first = row
    else:
        before = lane.last
        if _arrived_before(state, row, before):
            before = lane.first
            while not _arrived_before(state, row, links[before].row):
                before = links[before].row
        else:
            lane.last = row
        links[row].row = links[before].row
        links[before].row = row
    return True


@compiled_part
def _arrived_before(state: Any, row: int, other: int) -> bool:
    left, right = requests_of(state)[row], requests_of(state)[other]
    if left.arrival_time_s != right.arrival_time_s:
        return left.arrival_time_s < right.arrival_time_s
    return left.tie < right.tie


@compiled_part
def pass_lanes(state: Any) -> None:
    """Count that the queue is put in order, and bring what the key reads of classes up to date."""
    state.num_passes += 1
    if not state.counts_classes:
        return
    count_running(state)
    waits, place = 0, 0
    while place < state.num_lanes:
        if _drop_ended(state, place):
            waits |= 1 << requests_of(state)[lanes_of(state)[place].first].service_class
            place += 1
    lift(state, waits)


@compiled_part
def _drop_ended(state: Any, place: int) -> bool:
    """Let a lane begin with a request that waits; tell whether there is one, or close the lane."""
    lane = lanes_of(state)[place]
    while lane.first != NO_ROW:
        request = requests_of(state)[lane.first]
        if request.status == WAITING or request.status == PREEMPTED:
            return True
        lane.first = backlog_of(state)[lane.first].row
    state.num_lanes -= 1
    lanes_of(state)[place] = lanes_of(state)[state.num_lanes]
    return False


@compiled_part
def bring_up_to_date(state: Any, request: Any) -> None:
    """Write into a waiting request what passes of the queue change."""
    request.passes_waited = state.num_passes - backlog_of(state)[request.row].tie
    if state.counts_classes:
        request.class_tokens = state.class_totals[request.service_class]


@compiled_part
def find_head(state: Any, key: Any) -> int:
    """Return the lane that the head of the queue is the first of, or -1 if nobody waits."""
    lanes, place, best = lanes_of(state), 0, -1
    while place < state.num_lanes:
        if not _drop_ended(state, place):
            continue
        lane = lanes[place]
        request = requests_of(state)[lane.first]
        bring_up_to_date(state, request)
        lane.key, lane.second_key = key(request, state.clock_s)
        lane.tie = request.tie
        if best < 0 or precedes(lane, lanes[best]):
            best = place
        place += 1
    return best


@compiled_part
def leave_lane(state: Any, place: int) -> None:
    """Take the first request out of a lane."""
    lane = lanes_of(state)[place]
    lane.first = backlog_of(state)[lane.first].row
    if lane.first == NO_ROW:
        state.num_lanes -= 1
        lanes_of(state)[place] = lanes_of(state)[state.num_lanes]


@compiled_part
def give_up_lanes(state: Any) -> int:
    """Write the rows of all waiting requests into the backlog, in no order; return how many."""
    count = 0
    for row in range(state.next_row):
        request = requests_of(state)[row]
        if request.status == WAITING or request.status == PREEMPTED:
            bring_up_to_date(state, request)
            backlog_of(state)[count].row = row
            count += 1
    state.has_lanes = 0
    state.num_lanes = 0
    return count
