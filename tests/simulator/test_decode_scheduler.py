"""The teaching machine: its worked scenarios, its border, and a comparison with a plain model."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sched_env import DecodeSchedulerSim, RequestState
from sched_env.errors import ConfigError
from sched_env.metrics import count_outcomes, e2el_s, queue_wait_s, tpot_s, ttft_s
from sched_env.metrics.conservation import check_records
from sched_env.metrics.preemption import num_preemptions
from tests.simulator.plain_decode import PlainMachine

EVENT_KEYS = [
    "request_id",
    "phase",
    "action",
    "prompt_len",
    "generated_len",
    "max_new_tokens",
    "wait_steps",
    "free_kv_blocks",
    "preempted_request_id",
    "deadline_missed",
]
POLICIES = ("fixed_priority", "aging", "deadline")


def served(sim: DecodeSchedulerSim) -> list[int]:
    return [event["request_id"] for event in sim.run()]


def test_an_enqueued_request_waits_for_its_prefill() -> None:
    sim = DecodeSchedulerSim()
    sim.enqueue(7, prompt_len=3, max_new_tokens=4, priority=2, cache_hit=True, deadline_step=9)
    assert sim.queue == [
        RequestState(7, 3, max_new_tokens=4, priority=2, cache_hit=True, deadline_step=9)
    ]
    (request,) = sim.queue
    assert (request.phase, request.status, request.admitted) == ("prefill", "waiting", False)
    assert (request.total_len, request.done, request.wait_steps) == (3, False, 0)


def test_fields_of_a_request_stand_in_their_order() -> None:
    expected = (
        "request_id prompt_len max_new_tokens generated_len phase priority cache_hit wait_steps",
        "required_blocks admitted deadline_step preemptible status preemptions",
    )
    names = [field.name for field in dataclasses.fields(RequestState)]
    assert names == " ".join(expected).split()


def test_events_tell_all_in_plain_types() -> None:
    sim = DecodeSchedulerSim(free_kv_blocks=5)
    sim.enqueue(3, 4, max_new_tokens=1, required_blocks=2)
    first, last = sim.run()
    assert list(first) == EVENT_KEYS
    assert list(first.values()) == [3, "prefill", "prefill_to_decode", 4, 0, 1, 0, 3, None, False]
    assert list(last.values()) == [3, "decode", "finish", 4, 1, 1, 0, 5, None, False]
    assert {type(value) for value in first.values()} == {int, str, bool, type(None)}


def test_three_requests_run_through_in_order() -> None:
    """With as many new tokens as prompt tokens and ample blocks, each takes prompt + 1 steps."""
    sim = DecodeSchedulerSim()
    for request_id, size, priority, hit in ((1, 2, 2, True), (2, 3, 1, False), (3, 1, 3, True)):
        sim.enqueue(request_id, size, max_new_tokens=size, priority=priority, cache_hit=hit)
    events = sim.run(max_steps=20)
    assert served(sim) == [3, 1, 2, 3, 1, 1, 2, 2, 2]
    assert events is sim.timeline
    assert [event["action"] for event in events[:4]] == [*["prefill_to_decode"] * 3, "finish"]
    assert all(request.done and request.status == "finished" for request in sim.queue)
    assert sim.step() is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"phase": "prefill", "priority": 0}, {"phase": "decode", "priority": 9}),
        ({"cache_hit": True, "priority": 0}, {"cache_hit": False, "priority": 9}),
        ({"priority": 3, "prompt_len": 9}, {"priority": 2, "prompt_len": 1}),
        ({"prompt_len": 2, "request_id": 9}, {"prompt_len": 3, "request_id": 1}),
        ({"request_id": 1}, {"request_id": 2}),
    ],
)
def test_each_part_of_the_key_beats_those_behind_it(first: Any, second: Any) -> None:
    sim = DecodeSchedulerSim()
    sim.queue = [
        RequestState(**{"request_id": 5 + place, "prompt_len": 4, "max_new_tokens": 2, **values})
        for place, values in enumerate((second, first))
    ]
    keys = [sim._schedule_key(request) for request in sim.queue]
    assert keys[1] < keys[0]
    assert all(type(part) is int for key in keys for part in key)
    assert sim.step()["request_id"] == sim.queue[1].request_id


def test_keys_are_spelled_out() -> None:
    sim = DecodeSchedulerSim("deadline")
    sim.enqueue(4, prompt_len=6, max_new_tokens=3, priority=2, cache_hit=True, deadline_step=11)
    sim.enqueue(5, prompt_len=6, max_new_tokens=3, priority=2)
    assert sim._remaining_steps(sim.queue[0]) == 4
    assert sim._schedule_key(sim.queue[0]) == (7, 0, 0, -2, 6, 4)
    assert sim._schedule_key(sim.queue[1]) == (1_000_000_000, 0, 1, -2, 6, 5)
    sim.clock = 3
    sim.queue[0].phase, sim.queue[0].generated_len = "decode", 1
    assert sim._schedule_key(sim.queue[0]) == (6, 1, 0, -2, 7, 4)


@pytest.mark.parametrize("policy", ["fixed_priority", "aging"])
def test_deadlines_set_no_order_unless_asked_to(policy: str) -> None:
    sim = DecodeSchedulerSim(policy)
    sim.enqueue(1, 4, priority=1)
    sim.enqueue(2, 4, priority=0, deadline_step=3)
    assert sim.step()["request_id"] == 1
    assert sim.step()["deadline_missed"] is True


@pytest.mark.parametrize(("policy", "expected"), [("aging", [3, 4, 5]), ("deadline", [3, 3, 3])])
def test_waiting_counts_under_aging_alone(policy: str, expected: list[int]) -> None:
    sim = DecodeSchedulerSim(policy, aging_interval=3)
    sim.enqueue(1, 4, priority=3)
    found = []
    for waited in (2, 5, 6):
        sim.queue[0].wait_steps = waited
        found.append(sim._effective_priority(sim.queue[0]))
    assert found == expected


@pytest.mark.parametrize(("policy", "is_starved"), [("fixed_priority", True), ("aging", False)])
def test_aging_ends_starvation(policy: str, is_starved: bool) -> None:
    """A more important request comes whenever one has finished; a small one waits its turn."""
    sim = DecodeSchedulerSim(policy, free_kv_blocks=1, aging_interval=2)
    sim.enqueue(0, 4, max_new_tokens=1)
    for request_id in range(1, 11):
        sim.enqueue(request_id, 4, max_new_tokens=1, priority=2)
        sim.run(max_steps=2)
    assert sim.queue[0].done != is_starved


def test_waits_are_counted_and_never_reset() -> None:
    sim = DecodeSchedulerSim()
    sim.enqueue(1, 4, max_new_tokens=2, priority=1)
    sim.enqueue(2, 4, max_new_tokens=1)
    waits = [event["wait_steps"] for event in sim.run()]
    assert served(sim) == [1, 2, 1, 1, 2]
    assert waits == [0, 1, 1, 1, 3]
    assert [request.wait_steps for request in sim.queue] == [1, 3]


def test_one_that_does_not_fit_lets_the_next_pass() -> None:
    sim = DecodeSchedulerSim(free_kv_blocks=3)
    sim.enqueue(1, 4, max_new_tokens=1, priority=5, required_blocks=4)
    sim.enqueue(2, 4, max_new_tokens=1, required_blocks=3)
    assert served(sim) == [2, 2]
    assert [event["free_kv_blocks"] for event in sim.timeline] == [0, 3]
    assert sim.queue[0].status == "waiting"


def test_nothing_changes_where_nothing_can_be_admitted() -> None:
    sim = DecodeSchedulerSim(free_kv_blocks=1)
    sim.enqueue(1, 4, required_blocks=2)
    sim.enqueue(2, 4, required_blocks=3)
    before = copy.deepcopy(sim.queue)
    assert sim.step() is None
    assert sim.run() == []
    assert sim.queue == before
    assert (sim.clock, sim.free_kv_blocks) == (0, 1)


def test_a_preempted_request_goes_on_where_it_was() -> None:
    sim = DecodeSchedulerSim(free_kv_blocks=4)
    sim.enqueue(1, 4, max_new_tokens=3, required_blocks=4)
    sim.step()
    sim.step()
    sim.enqueue(2, 4, max_new_tokens=1, priority=1, required_blocks=3)
    event = sim.step()
    assert (event["request_id"], event["preempted_request_id"]) == (2, 1)
    assert event["free_kv_blocks"] == 1
    victim = sim.queue[0]
    assert (victim.status, victim.admitted, victim.preemptions) == ("preempted", False, 1)
    assert (victim.phase, victim.generated_len) == ("decode", 1)
    rest = sim.run()[3:]
    assert [event["request_id"] for event in rest] == [2, 1, 1]
    assert [event["generated_len"] for event in rest] == [1, 2, 3]
    assert sim.free_kv_blocks == 4


def test_the_victim_is_the_lowest_then_largest_then_first_that_suffices() -> None:
    def evicted(*held: tuple[int, int], needs: int = 4) -> int | None:
        sim = DecodeSchedulerSim(free_kv_blocks=sum(blocks for _, blocks in held))
        for request_id, (priority, blocks) in enumerate(held):
            sim.enqueue(request_id, 4, 9, priority=priority, required_blocks=blocks)
            sim._ensure_capacity(sim.queue[-1])
        sim.enqueue(99, 4, priority=5, required_blocks=needs)
        return sim.step()["preempted_request_id"]

    assert evicted((2, 4), (1, 4), (3, 4)) == 1
    assert evicted((1, 4), (1, 6), (1, 5)) == 1
    assert evicted((1, 4), (1, 4)) == 0
    assert evicted((0, 3), (2, 4), (1, 2)) == 1
    assert evicted((5, 4), (6, 4)) is None
    assert evicted((0, 2), (0, 2)) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_priority_is_no_reason_to_preempt(policy: str) -> None:
    sim = DecodeSchedulerSim(policy, free_kv_blocks=2)
    sim.enqueue(1, 4, priority=1, required_blocks=2)
    sim.step()
    sim.enqueue(2, 4, priority=1, required_blocks=2, deadline_step=4)
    assert sim.step()["request_id"] == 1


def test_a_protected_request_keeps_its_blocks() -> None:
    sim = DecodeSchedulerSim(free_kv_blocks=2)
    sim.enqueue(1, 4, required_blocks=2, preemptible=False)
    sim.step()
    sim.enqueue(2, 4, priority=9, required_blocks=2)
    event = sim.step()
    assert (event["request_id"], event["preempted_request_id"]) == (1, None)


def test_a_deadline_is_missed_as_soon_as_it_cannot_be_met() -> None:
    sim = DecodeSchedulerSim("deadline")
    sim.enqueue(1, 4, max_new_tokens=3, priority=9, deadline_step=30)
    sim.enqueue(2, 4, max_new_tokens=2, deadline_step=2)
    first = sim.step()
    assert (first["request_id"], first["deadline_missed"]) == (2, True)
    assert [event["deadline_missed"] for event in sim.run()[-4:]] == [False] * 4
    exact = DecodeSchedulerSim()
    exact.enqueue(1, 4, max_new_tokens=2, deadline_step=3)
    assert [event["deadline_missed"] for event in exact.run()] == [False] * 3


def test_another_key_makes_another_scheduler() -> None:
    class LongestFirst(DecodeSchedulerSim):
        def _schedule_key(self, req: RequestState) -> tuple[int, ...]:
            return (-req.max_new_tokens, req.request_id)

    sim = LongestFirst()
    for request_id, tokens in ((1, 1), (2, 3), (3, 2)):
        sim.enqueue(request_id, 4, max_new_tokens=tokens)
    assert served(sim) == [2] * 4 + [3] * 3 + [1] * 2


def test_outcomes_feed_the_metrics_of_the_big_engine() -> None:
    sim = DecodeSchedulerSim(free_kv_blocks=2)
    sim.enqueue(1, 4, max_new_tokens=2, required_blocks=2)
    sim.step()
    sim.enqueue(2, 4, max_new_tokens=1, priority=1, required_blocks=2)
    sim.enqueue(3, 4, required_blocks=9)
    sim.run()
    table = sim.outcomes()
    check_records(table)
    assert count_outcomes(table).num_finished == 2
    assert queue_wait_s(table)[:2].tolist() == [0, 0]
    assert ttft_s(table)[:2].tolist() == [4, 2]
    assert tpot_s(table)[0] == 1
    assert e2el_s(table)[:2].tolist() == [5, 2]
    assert np.isnan(queue_wait_s(table)[2])
    assert num_preemptions(table) == 1


def test_runs_stop_at_their_limit() -> None:
    sim = DecodeSchedulerSim()
    sim.enqueue(1, 4, max_new_tokens=5)
    assert sim.run(max_steps=0) == []
    assert len(sim.run(max_steps=2)) == 2
    assert len(sim.run(max_steps=2)) == 4
    for wrong in (-1, 1.5, None):
        with pytest.raises(ValueError, match="max_steps is"):
            sim.run(max_steps=wrong)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prompt_len": 0}, "prompt_len is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": 1.5}, "max_new_tokens is 1.5"),
        ({"required_blocks": -2}, "required_blocks is -2"),
        ({"priority": "high"}, "priority is 'high'"),
        ({"request_id": 1}, "request_id 1 was used before"),
        ({"request_id": None}, "request_id is None"),
        ({"deadline_step": 1}, "deadline_step 1 is not ahead of the clock, which stands at 1"),
        ({"deadline_step": 2.0}, "deadline_step is 2.0"),
        ({"prompt_len": 2**70}, "prompt_len is"),
    ],
)
def test_wrong_requests_are_refused(values: dict[str, Any], message: str) -> None:
    sim = DecodeSchedulerSim()
    sim.enqueue(1, 4)
    sim.step()
    with pytest.raises(ValueError, match=message):
        sim.enqueue(**{"request_id": 2, "prompt_len": 4, **values})
    assert len(sim.queue) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "agng"}, "policy 'agng' is unknown. Did you mean 'aging'"),
        ({"policy": None}, "policy None is unknown"),
        ({"free_kv_blocks": -1}, "free_kv_blocks is -1"),
        ({"aging_interval": 0}, "aging_interval is 0"),
    ],
)
def test_wrong_machines_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecodeSchedulerSim(**arguments)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("phase", "decoding", "phase of request 1 is 'decoding'. Did you mean 'decode'"),
        ("status", 3, "status of request 1 is 3"),
        ("priority", 0.5, "priority is 0.5"),
        ("deadline_step", "soon", "deadline_step is 'soon'"),
        ("wait_steps", 2**70, "wait_steps is"),
    ],
)
def test_a_field_set_to_nonsense_is_named(name: str, value: Any, message: str) -> None:
    sim = DecodeSchedulerSim()
    sim.enqueue(1, 4)
    setattr(sim.queue[0], name, value)
    with pytest.raises(ConfigError, match=message):
        sim.step()


def test_the_queue_may_be_changed_from_outside() -> None:
    sim = DecodeSchedulerSim()
    sim.queue.append(RequestState(1, 4, 1))
    sim.queue.append(RequestState(2, 4, 1, priority=1))
    assert sim.step()["request_id"] == 2
    del sim.queue[1]
    assert served(sim)[1:] == [1, 1]
    stranger = RequestState(3, 4, 1)
    assert sim._ensure_capacity(stranger) is None
    assert stranger.admitted


class Machines(RuleBasedStateMachine):
    """Drive the machine and a plain model of its rules side by side."""

    @initialize(
        policy=st.sampled_from(POLICIES), blocks=st.integers(0, 7), interval=st.integers(1, 3)
    )
    def start(self, policy: str, blocks: int, interval: int) -> None:
        self.sim = DecodeSchedulerSim(policy, blocks, interval)
        self.plain = PlainMachine(policy, blocks, interval)
        self.blocks = blocks

    @rule(
        prompt_len=st.integers(1, 4),
        max_new_tokens=st.integers(1, 4),
        priority=st.integers(-2, 3),
        cache_hit=st.booleans(),
        required_blocks=st.integers(1, 4),
        ahead=st.none() | st.integers(1, 12),
        preemptible=st.booleans(),
    )
    def enqueue(self, ahead: int | None, **values: Any) -> None:
        values["deadline_step"] = None if ahead is None else self.sim.clock + ahead
        values["request_id"] = (7 * len(self.sim.queue)) % 23 - 5
        if len(self.sim.queue) < 23:
            self.sim.enqueue(**values)
            self.plain.add(**values)

    @precondition(lambda self: self.sim.queue)
    @rule(place=st.integers(0), priority=st.integers(-2, 3), waited=st.integers(0, 20))
    def write(self, place: int, priority: int, waited: int) -> None:
        row = place % len(self.sim.queue)
        self.sim.queue[row].priority = self.plain.requests[row]["priority"] = priority
        self.sim.queue[row].wait_steps = self.plain.requests[row]["waited"] = waited

    @rule(times=st.integers(1, 5))
    def step(self, times: int) -> None:
        for _ in range(times):
            before = copy.deepcopy(self.sim.queue)
            clock = self.sim.clock
            event, expected = self.sim.step(), self.plain.step()
            if expected is None:
                assert event is None
                assert (self.sim.clock, self.sim.queue) == (clock, before)
                return
            assert event is not None
            names = ("request_id", "preempted_request_id", "action")
            assert tuple(event[name] for name in names) == expected
            assert self.sim.clock == clock + 1 == self.plain.clock
            self.check_step(before, event)

    def check_step(self, before: list[RequestState], event: dict[str, Any]) -> None:
        """One request moved by one; all other unfinished ones waited; nobody lost progress."""
        for old, new in zip(before, self.sim.queue, strict=True):
            moved = new.generated_len - old.generated_len + (new.phase != old.phase)
            is_chosen = new.request_id == event["request_id"]
            assert moved == is_chosen
            assert new.wait_steps - old.wait_steps == (not is_chosen and not old.done)
            lost = new.preemptions - old.preemptions
            assert lost == (new.request_id == event["preempted_request_id"])

    @invariant()
    def blocks_are_conserved(self) -> None:
        if hasattr(self, "sim"):
            held = sum(one.required_blocks for one in self.sim.queue if one.admitted)
            assert self.sim.free_kv_blocks >= 0
            assert self.sim.free_kv_blocks + held == self.blocks
            assert self.sim.free_kv_blocks == self.plain.free

    @invariant()
    def states_agree(self) -> None:
        if hasattr(self, "sim"):
            for ours, plain in zip(self.sim.queue, self.plain.requests, strict=True):
                assert (ours.status == "finished") == ours.done
                assert ours.admitted == (ours.status == "running") == plain["holds"]
                assert (ours.status, ours.generated_len) == (plain["status"], plain["made"])
                assert (ours.wait_steps, ours.preemptions) == (plain["waited"], plain["evicted"])
                assert self.sim._schedule_key(ours) == self.plain.place(plain)


Machines.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestMachines = Machines.TestCase
