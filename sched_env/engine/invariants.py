"""What holds in every state of a server, as one function for tests; training leaves it out.

The rules, by the name that a violation is reported under:

- blocks: the blocks in use are those that running requests hold, just enough for their computed
  tokens, and no more than there are; none once all requests have ended.
- batch: a batch takes no more tokens than its budget, and at least one of each request in it.
- progress: a request has computed between none and all of its tokens, and its times are in order.
- preemption: it resets computed tokens, blocks and status, and never an output.
- order: waiting requests stand in service order.
- front: what lies by value says the same as the table of requests.
- places: a request is in exactly one place, and its status says which.
- conservation: injected = waiting + running + finished + rejected + timed out.
- seats: no more than ``max_num_seqs`` requests run.
- sums: running totals agree with what they sum up.
- cohort: its members decode, and its sums and its ring of growth are theirs.
- room: nothing is written past the end of an array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine.records import (
    BRINGS_OUTPUT,
    EVENT,
    FINISHED,
    PREEMPTED,
    REJECTED,
    RUNNING,
    TIMED_OUT,
    WAITING,
)
from sched_env.engine.world import World

_UNCHANGING = (
    "arrival_time_s",
    "priority",
    "weight",
    "ttft_slo_s",
    "tpot_slo_s",
    "lone_prefill_s",
    "predicted_output_tokens",
    "prompt_tokens",
    "output_tokens",
    "service_class",
)
_SET_ONCE = ("first_scheduled_s", "first_token_s", "finish_s")
_RISING = ("num_output_tokens", "num_preemptions", "num_recomputed_tokens", "missed")


class InvariantError(AssertionError):
    """A state that cannot be: a fault of the engine, never of a user."""


@dataclass(frozen=True)
class Snapshot:
    """A server as it stands, copied.

    Attributes:
        state: The SERVER record.
        requests: REQUEST (num_injected,), each as it stands wherever it is held.
        front: WAITER (num_front,), the waiting requests that lie by value, in order.
        waiting: Rows of all waiting requests: the front, then those behind it without husks.
        places: PLACE (num_front,), what decisions look at of them.
        admitted: Rows of those chosen to run and not scheduled yet.
        running: Rows of the running ones, in batch order.
        backlog: ENTRY (num_backlog,), the heap of further waiting ones and husks of ended ones.
        pool: BLOCK (num_blocks + 1,) with prefix caching, else empty.
        tables: int64 (seats, num_blocks), the blocks of each request by its table.
        scheduled: int32 (num_running,), tokens of the running ones in the batch.
        cohort: SEAT (cohort_size,), as they lie.
        growth: int64 (block_size,), how many of them need a block for each of the next tokens.
        num_expiries_room: Entries that fit in the heap of deadlines.
        num_events_room: Events that fit in the log.
        arrives_by_clock: Whether arrival times are times of the server's clock.
    """

    state: Any
    requests: NDArray[Any]
    front: NDArray[Any]
    waiting: list[int]
    places: NDArray[Any]
    admitted: list[int]
    running: list[int]
    backlog: NDArray[Any]
    pool: NDArray[Any]
    tables: NDArray[np.int64]
    scheduled: NDArray[np.int32]
    cohort: NDArray[Any]
    growth: NDArray[np.int64]
    num_expiries_room: int
    num_events_room: int
    arrives_by_clock: bool


def take_snapshot(world: World, index: int = 0, num_injected: int | None = None) -> Snapshot:
    """Copy server ``index`` of a world.

    Args:
        world: The world.
        index: The server.
        num_injected: Requests that have arrived, if they did not come from the world's trace.
    """
    # Plain arrays: a recarray takes three times as long to give a field.
    state = world.state.view(np.ndarray)[index].copy()
    count = int(state["next_row"]) if num_injected is None else num_injected
    requests = world.requests[index, :count].view(np.ndarray).copy()
    cohort, growth = (one.view(np.ndarray).copy() for one in world.cohort(index))
    rows: dict[str, list[int]] = {}
    for part in ("admitted", "running"):
        records = world.live(index, part).view(np.ndarray)
        rows[part] = records["row"].tolist()
        requests[rows[part]] = records
    return Snapshot(
        state=state,
        requests=requests,
        front=world.front(index).view(np.ndarray),
        waiting=world.waiting_rows(index),
        places=world.places(index).view(np.ndarray).copy(),
        backlog=world.arrays.heaps[index, : int(state["num_backlog"])].view(np.ndarray).copy(),
        pool=world.arrays.blocks[index].view(np.ndarray).copy(),
        tables=world.block_tables(index).copy(),
        scheduled=world.seats(index)["num_scheduled_tokens"].copy(),
        cohort=cohort,
        growth=growth,
        num_expiries_room=world.arrays.heaps.shape[1] - world.row_capacity,
        num_events_room=world.arrays.events.shape[1],
        arrives_by_clock=num_injected is None,
        **rows,
    )


def check_invariants(
    world: World,
    index: int = 0,
    before: Snapshot | None = None,
    *,
    num_injected: int | None = None,
) -> Snapshot:
    """Check a server between two entries into the compiled core.

    Args:
        world: The world.
        index: The server.
        before: The same server earlier, in the same run or episode.
        num_injected: Requests that have arrived, if they did not come from the world's trace.

    Returns:
        The server as it stands, to be given as ``before`` next time.

    Raises:
        InvariantError: A rule is broken; the text names it.
    """
    now = take_snapshot(world, index, num_injected)
    for rule in (
        _room,
        _seats,
        _places,
        _conservation,
        _progress,
        _blocks,
        _batch,
        _order,
        _front,
        _sums,
        _cohort,
        _counters,
    ):
        rule(now)
    if before is not None:
        _preemption(before, now)
    return now


def _require(holds: Any, rule: str, text: str) -> None:
    if not holds:
        raise InvariantError(f"{rule}: {text}")


def _require_all(holds: NDArray[np.bool_], rule: str, text: str) -> None:
    if not holds.all():
        raise InvariantError(f"{rule}: {text}, in rows {np.flatnonzero(~holds).tolist()[:10]}")


def _is_live(requests: NDArray[Any]) -> NDArray[np.bool_]:
    """Flag requests that wait or run."""
    status = requests["status"]
    return (status == WAITING) | (status == RUNNING) | (status == PREEMPTED)


def _room(now: Snapshot) -> None:
    state = now.state
    _require(state["num_backlog"] <= state["row_capacity"], "room", "the backlog is too long")
    _require(state["num_expiries"] <= now.num_expiries_room, "room", "there are too many deadlines")
    fits = now.num_events_room == 0 or state["num_events"] <= now.num_events_room
    _require(fits, "room", f"more than {now.num_events_room} {EVENT.itemsize}-byte events")


def _seats(now: Snapshot) -> None:
    most = int(now.state["max_num_seqs"])
    count = len(now.running) + len(now.admitted)
    _require(count <= most, "seats", f"{count} requests run or are to run, {most} may")


def _places(now: Snapshot) -> None:
    waiting = [*now.waiting, *now.admitted]
    ended = np.flatnonzero(~_is_live(now.requests))
    everywhere = [*waiting, *now.running, *ended.tolist()]
    places = np.bincount(np.array(everywhere, np.int64), minlength=len(now.requests))
    _require_all(places == 1, "places", "a request is in no place or in two")
    status = now.requests["status"]
    _require_all(status[now.running] == RUNNING, "places", "a running request has another status")
    is_waiting = _is_live(now.requests[waiting]) & (status[waiting] != RUNNING)
    _require_all(is_waiting, "places", "a waiting request has another status")
    preempted = status[waiting] == PREEMPTED
    was_preempted = now.requests["num_preemptions"][waiting] > 0
    _require_all(preempted == was_preempted, "places", "preempted and never preempted, or not")


def _conservation(now: Snapshot) -> None:
    state = now.state
    _require(state["num_front"] == len(now.front), "conservation", "the front is miscounted")
    waiting = len(now.waiting)
    counted = int(state["num_waiting"])
    _require(counted == waiting, "conservation", f"{waiting} wait, {counted} are counted")
    ended = sum(int(state[f"num_{name}"]) for name in ("finished", "rejected", "timed_out"))
    live = waiting + len(now.admitted) + len(now.running)
    injected = len(now.requests)
    if state["warmup_s"] == 0:
        _require(
            injected == live + ended,
            "conservation",
            f"{injected} injected, but {live} live and {ended} ended",
        )


def _blocks(now: Snapshot) -> None:
    state, requests = now.state, now.requests
    total, free = int(state["num_blocks"]), int(state["free_blocks"])
    _require(0 <= free <= total, "blocks", f"{free} of {total} blocks are free")
    held = requests["num_blocks"].astype(np.int64)
    _require_all(held[now.running] > 0, "blocks", "a running request holds none")
    size = int(state["block_size"])
    needed = -(-requests["num_computed_tokens"].astype(np.int64) // size)
    runs = requests["status"] == RUNNING
    _require_all((held == needed) | ~runs, "blocks", "not the blocks of its computed tokens")
    _require_all((held == 0) | runs, "blocks", "a request that does not run holds some")
    used = total - free
    if state["enable_prefix_caching"]:
        _shared_blocks(now, used)
    else:
        _require(used == held.sum(), "blocks", f"{used} in use, {held.sum()} held")


def _shared_blocks(now: Snapshot, used: int) -> None:
    """Check that each block has as many users as tables name it, and that the rest are listed."""
    total = int(now.state["num_blocks"])
    users = np.zeros(total, np.int64)
    for request in now.requests[now.requests["num_blocks"] > 0]:
        users[now.tables[request["table"], : request["num_blocks"]]] += 1
    _require_all(
        users == now.pool["num_users"][:total], "blocks", "users of a block are miscounted"
    )
    _require(used == np.count_nonzero(users), "blocks", f"{used} in use, others are in tables")
    listed, block = [], int(now.pool["next"][total])
    while block != total and len(listed) <= total:
        listed.append(block)
        block = int(now.pool["next"][block])
    _require(sorted(listed) == np.flatnonzero(users == 0).tolist(), "blocks", "free list is wrong")


def _batch(now: Snapshot) -> None:
    _require_all(now.scheduled >= 0, "batch", "fewer than no tokens are scheduled")
    budget, tokens = int(now.state["max_num_batched_tokens"]), int(now.state["batch_tokens"])
    _require(0 <= tokens <= budget, "batch", f"{tokens} tokens in a batch of at most {budget}")
    in_flight = int(now.scheduled.sum())
    agrees = in_flight in (0, tokens) or bool(now.state["async_scheduling"])
    _require(agrees, "batch", f"{tokens} tokens counted, {in_flight} scheduled")


def _progress(now: Snapshot) -> None:
    requests = now.requests
    computed = requests["num_computed_tokens"].astype(np.int64)
    tokens = requests["prompt_tokens"].astype(np.int64) + requests["num_output_tokens"]
    tokens += requests["num_output_placeholders"] + (requests["in_flight"] == BRINGS_OUTPUT)
    _require_all(computed >= 0, "progress", "fewer than no tokens are computed")
    _require_all(computed <= tokens, "progress", "more tokens are computed than there are")
    made = requests["num_output_tokens"]
    _require_all(made <= requests["stop_at_tokens"], "progress", "too many output tokens")
    live = _is_live(requests)
    complete = live & (made == requests["stop_at_tokens"])
    _require_all(~complete, "progress", "all output tokens and no end")
    _require_all(live == np.isnan(requests["finish_s"]), "progress", "an end and no time of it")
    _require_all(live == (requests["finish_reason"] == 0), "progress", "an end and no reason")
    has_token = ~np.isnan(requests["first_token_s"])
    _require_all(has_token == (made > 0), "progress", "output and no time of it")
    times = ("arrival_time_s", "first_scheduled_s", "first_token_s", "last_token_s", "finish_s")
    latest = np.zeros(len(requests))
    for name in times if now.arrives_by_clock else times[1:]:
        given = np.where(np.isnan(requests[name]), latest, requests[name])
        _require_all(given >= latest, "progress", f"{name} comes too early")
        _require_all(given <= now.state["clock_s"], "progress", f"{name} has not come yet")
        latest = given


def _order(now: Snapshot) -> None:
    names = ("key", "second_key", "tie")
    front = [tuple(one[name].item() for name in names) for one in now.front]
    _require(front == sorted(front), "order", f"the front is not sorted: {front}")
    behind = [tuple(entry[name].item() for name in names) for entry in now.backlog]
    for place in range(1, len(behind)):
        parent = (place - 1) // 2
        _require(behind[parent] <= behind[place], "order", f"no heap at {parent} and {place}")
    if behind:
        wanted = int(now.state["num_waiting_slots"]) or int(now.state["front_size"])
        enough = len(front) >= wanted
        _require(enough, "order", "the front has room and the backlog is not empty")
        _require(front[-1] <= behind[0], "order", "one of the backlog precedes the front")


def _front(now: Snapshot) -> None:
    requests = now.requests[now.front["row"]]
    tokens = requests["prompt_tokens"] + requests["num_output_tokens"]
    blocks = -(-tokens.astype(np.int64) // int(now.state["block_size"]))
    _require_all(now.front["num_tokens"] == tokens, "front", "another number of tokens")
    _require_all(now.places["whole_blocks"] == blocks, "front", "another number of blocks")
    _require_all(now.places["key"] == now.front["key"], "front", "another key")
    if now.state["num_waiting_slots"] > 0:
        for name in ("arrival_time_s", "ttft_slo_s", "lone_prefill_s", "weight"):
            _require_all(now.front[name] == requests[name], "front", f"another {name}")
        for name in ("arrival_time_s", "moved_at_iteration", "density"):
            _require_all(now.places[name] == requests[name], "front", f"another {name}")


def _close(given: Any, expected: float) -> bool:
    return bool(abs(float(given) - expected) <= 1e-6 * max(1.0, abs(expected)))


def _sums(now: Snapshot) -> None:
    waiting = now.requests[now.waiting]
    tokens = waiting["prompt_tokens"].astype(np.float64) + waiting["num_output_tokens"]
    left = waiting["predicted_output_tokens"] - waiting["num_output_tokens"]
    sums = {
        "waiting_weight": float(waiting["weight"].sum()),
        "waiting_prefill_tokens": float(tokens.sum()),
        "waiting_decode_tokens": float(np.maximum(left, 1.0).sum()),
    }
    for name, expected in sums.items():
        given = float(now.state[name])
        _require(_close(given, expected), "sums", f"{name} is {given}, not {expected}")


def _cohort(now: Snapshot) -> None:
    state, seats = now.state, now.cohort
    if len(seats) == 0:
        return
    given, size = int(state["cohort_tokens"]), int(state["block_size"])
    outputs = seats["num_output_tokens"].astype(np.int64) + given
    computed = seats["num_computed_tokens"].astype(np.int64) + given
    tokens = seats["prompt_tokens"] + outputs
    decodes = (outputs > 0) & (computed + 1 == tokens) & (seats["is_prefill_chunk"] == 0)
    _require_all(decodes, "cohort", "a member does not decode")
    computed += state["cohort_is_scheduled"]
    places = (int(state["cohort_place"]) - computed) % size
    growth = np.bincount(places, minlength=size)
    _require_all(now.growth == growth, "cohort", "who needs blocks is miscounted")
    left = seats["stop_at_tokens"] - outputs
    sums = {
        "cohort_context_tokens": int(tokens.sum()),
        "cohort_left_tokens": int(left.sum()),
        "cohort_ends_at_tokens": int(left.min()) + given,
    }
    for name, expected in sums.items():
        number = int(state[name])
        _require(number == expected, "cohort", f"{name} is {number}, not {expected}")


def _counters(now: Snapshot) -> None:
    """Compare counters with the table; a warm-up sets them back, so they are skipped then."""
    if now.state["warmup_s"] > 0:
        return
    requests, status = now.requests, now.requests["status"]
    counters = {
        "num_finished": int((status == FINISHED).sum()),
        "num_rejected": int((status == REJECTED).sum()),
        "num_timed_out": int((status == TIMED_OUT).sum()),
        "num_preemptions": int(requests["num_preemptions"].sum()),
        "num_recomputed_tokens": int(requests["num_recomputed_tokens"].sum()),
        "num_output_tokens": int(requests["num_output_tokens"].sum()),
        "num_missed": int(requests["missed"].sum()),
        "weight_injected": float(requests["weight"].sum()),
        "weight_missed": float(requests["weight"][requests["missed"] > 0].sum()),
    }
    for name, expected in counters.items():
        given = float(now.state[name])
        _require(_close(given, expected), "sums", f"{name} is {given}, not {expected}")


def _preemption(before: Snapshot, now: Snapshot) -> None:
    old, new = before.requests, now.requests[: len(before.requests)]
    _require(len(new) == len(old), "preemption", "requests have disappeared")
    for name in _UNCHANGING:
        same = (old[name] == new[name]) | (np.isnan(old[name]) & np.isnan(new[name]))
        _require_all(same, "preemption", f"{name} has changed")
    for name in _SET_ONCE:
        same = np.isnan(old[name]) | (old[name] == new[name])
        _require_all(same, "preemption", f"{name} has changed")
    for name in _RISING:
        _require_all(new[name] >= old[name], "preemption", f"{name} has shrunk")
    stays = _is_live(old) | (old["status"] == new["status"])
    _require_all(stays, "preemption", "a request has come back after its end")
    spared = new["num_preemptions"] == old["num_preemptions"]
    grows = new["num_computed_tokens"] >= old["num_computed_tokens"]
    _require_all(grows | ~spared, "preemption", "computed tokens were lost without one")
    preempted = new["status"] == PREEMPTED
    reset = (new["num_computed_tokens"] == 0) | bool(now.state["swaps"])
    reset &= new["num_blocks"] == 0
    _require_all(reset | ~preempted, "preemption", "computed tokens or blocks are left")
