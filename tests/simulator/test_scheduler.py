"""The scheduler for scripts: its face, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import Scheduler, SchedulerConfig
from sched_env.engine.invariants import check_invariants
from sched_env.errors import ConfigError, UnknownNameError


def small(**changes: Any) -> Scheduler:
    given = {"max_num_batched_tokens": 16, "max_num_seqs": 4, "num_blocks": 12, "block_size": 4}
    return Scheduler(SchedulerConfig(**{**given, **changes}))


def drain(scheduler: Scheduler) -> list[Any]:
    finished: list[Any] = []
    while scheduler.has_unfinished:
        scheduler.schedule()
        finished += scheduler.update()
    return finished


def test_a_request_goes_through_its_states() -> None:
    scheduler = small()
    scheduler.add_request("a", prompt_len=20, max_tokens=2)
    view = scheduler.request("a")
    assert (view.status, view.num_computed_tokens, view.num_tokens) == ("waiting", 0, 20)
    assert scheduler.schedule() == {"a": 16}
    assert scheduler.request("a").status == "running"
    assert scheduler.request("a").num_blocks == 4
    assert scheduler.update() == []
    assert scheduler.request("a").output == ()  # the prompt is not computed yet
    assert scheduler.schedule() == {"a": 4}
    scheduler.update()
    assert scheduler.request("a").output == (0,)
    assert scheduler.schedule() == {"a": 1}
    assert scheduler.update() == ["a"]
    view = scheduler.request("a")
    assert (view.status, view.finish_reason, view.output) == ("finished", "length", (0, 1))
    assert view.num_blocks == 0
    assert scheduler.free_blocks == 12
    assert scheduler.finished == ("a",)


def test_what_schedule_returns_is_a_copy() -> None:
    scheduler = small()
    scheduler.add_request("a", 5, 2)
    scheduler.schedule().clear()
    scheduler.update()
    assert scheduler.request("a").output == (0,)


def test_without_sample_fn_the_end_token_is_a_number_of_tokens() -> None:
    scheduler = Scheduler(SchedulerConfig(), eos_token_id=2)
    scheduler.add_request("a", 3, 9)
    scheduler.add_request("b", 3, 2)
    assert set(drain(scheduler)) == {"a", "b"}
    assert scheduler.request("a").output == (0, 1, 2)
    assert scheduler.request("a").finish_reason == "stop"
    assert scheduler.request("b").finish_reason == "length"


def test_sample_fn_is_called_in_batch_order_with_the_view_before_the_token() -> None:
    seen: list[tuple[Any, int, tuple[int, ...]]] = []

    def sample(view: Any) -> int:
        seen.append((view.request_id, view.num_tokens, view.output))
        return 7 if view.request_id == "a" else 9

    scheduler = Scheduler(SchedulerConfig(), sample_fn=sample, eos_token_id=9)
    scheduler.add_request("a", 3, 2)
    scheduler.add_request("b", 4, 5)
    assert drain(scheduler) == ["b", "a"]
    assert seen == [("a", 3, ()), ("b", 4, ()), ("a", 4, (7,))]
    assert scheduler.request("b").finish_reason == "stop"
    assert scheduler.request("b").output == (9,)


@pytest.mark.parametrize(
    ("eos_at", "max_tokens", "max_model_len", "reason", "num_outputs"),
    [
        (2, 5, None, "stop", 2),
        (0, 5, None, "length", 5),
        (5, 5, None, "stop", 5),  # the last allowed token is the end-of-sequence one
        (0, 50, 13, "max_model_len", 3),
        (3, 50, 13, "stop", 3),
        (0, 3, 13, "length", 3),
    ],
)
def test_reasons_to_finish(
    eos_at: int, max_tokens: int, max_model_len: int | None, reason: str, num_outputs: int
) -> None:
    scheduler = small(max_model_len=max_model_len)
    scheduler.add_request("a", 10, max_tokens, eos_at=eos_at)
    drain(scheduler)
    assert scheduler.request("a").finish_reason == reason
    assert len(scheduler.request("a").output) == num_outputs


def test_larger_priority_is_served_first_then_earlier_arrival_then_id() -> None:
    scheduler = small(policy="priority", max_num_seqs=1)
    scheduler.add_request(3, 2, 1, priority=0, arrival_time=1.0)
    scheduler.add_request(2, 2, 1, priority=0, arrival_time=1.0)
    scheduler.add_request(1, 2, 1, priority=0, arrival_time=5.0)
    scheduler.add_request(4, 2, 1, priority=9, arrival_time=9.0)
    assert scheduler.waiting == (4, 2, 3, 1)
    assert drain(scheduler) == [4, 2, 3, 1]


@pytest.mark.parametrize("count", [20, 2000])
def test_text_ids_tie_as_text_does(count: int) -> None:
    scheduler = small(policy="priority", max_num_seqs=1)
    names = [f"request-{number}" for number in range(count)]
    for name in names:
        scheduler.add_request(name, 2, 1)
    assert list(scheduler.waiting) == sorted(names)
    check_invariants(scheduler._world, num_injected=count)
    assert drain(scheduler)[:40] == sorted(names)[:40]


def test_text_ids_that_crowd_each_other_are_numbered_anew() -> None:
    scheduler = small(policy="priority", max_num_seqs=1)
    scheduler.add_request("b", 2, 30)
    scheduler.add_request("a", 2, 30)
    names = [f"a{'0' * (150 - number)}1" for number in range(150)]  # each before the last one
    for name in reversed(names):
        scheduler.add_request(name, 2, 1)
        if name == names[100]:
            scheduler.schedule()
            scheduler.update()
    in_order = sorted([*names, "b"])
    assert scheduler.running == ("a",)
    assert list(scheduler.waiting) == in_order
    check_invariants(scheduler._world, num_injected=152)
    assert [name for name in drain(scheduler) if name != "a"] == in_order


def test_numbers_of_numpy_are_numbers() -> None:
    scheduler = small(policy="priority")
    scheduler.add_request(np.int64(1), np.int32(2), np.int64(3), priority=np.int64(0))
    scheduler.add_request(2, 2, 1, priority=np.float32(1.5), arrival_time=np.float64(2))
    assert scheduler.waiting == (2, 1)


def test_p07_calls_a_preempted_request_waiting_and_counts_computed_after_the_update() -> None:
    scheduler = small(rules="p07", num_blocks=3, block_size=2)
    scheduler.add_request(0, 2, 3)
    scheduler.add_request(1, 2, 3)
    scheduler.schedule()
    assert scheduler.request(0).num_computed_tokens == 0
    scheduler.update()
    assert scheduler.request(0).num_computed_tokens == 2
    scheduler.schedule()
    assert scheduler.preempted == (1,)
    view = scheduler.request(1)
    assert (view.status, view.output, view.num_preemptions) == ("waiting", (0,), 1)
    assert (view.num_computed_tokens, view.num_blocks) == (0, 0)


def test_it_grows_past_its_first_rows() -> None:
    scheduler = small(max_num_seqs=500, num_blocks=2000, max_num_batched_tokens=1000)
    before, added = None, 0
    while added < 400 or scheduler.has_unfinished:
        for _ in range(min(37, 400 - added)):
            scheduler.add_request(added, 1 + added % 9, 1 + added % 5)
            added += 1
        scheduler.schedule()
        before = check_invariants(scheduler._world, before=before, num_injected=added)
        scheduler.update()
        before = check_invariants(scheduler._world, before=before, num_injected=added)
    assert sorted(map(int, map(str, scheduler.finished))) == list(range(400))
    assert [len(scheduler.request(i).output) for i in range(400)] == [1 + i % 5 for i in range(400)]


def test_growth_does_not_disturb_what_waits_and_runs() -> None:
    def trace_of(first_batch: int) -> list[dict[Any, int]]:
        """Add the same 150 requests, with a table that grows before or after some have run."""
        scheduler = small(num_blocks=40, max_num_seqs=6)
        for name in range(150):
            scheduler.add_request(name, 3 + name % 7, 2 + name % 6)
            if name == first_batch:
                steps = [scheduler.schedule()]
                scheduler.update()
        while scheduler.has_unfinished:
            steps.append(scheduler.schedule())
            scheduler.update()
        return steps

    # 63: the table has not grown yet when the first batch runs; 140: it has, twice.
    assert trace_of(63) == trace_of(140)


def test_very_many_seats_cost_no_memory() -> None:
    scheduler = small(max_num_seqs=2**31 - 1)
    scheduler.add_request("a", 5, 2)
    assert drain(scheduler) == ["a"]


def test_rejected_requests_are_counted_and_never_wait() -> None:
    scheduler = small(max_model_len=30)
    scheduler.add_request("long", 30, 1)
    scheduler.add_request("wide", 49, 1)
    scheduler.add_request("fits", 29, 5)
    assert scheduler.rejected == ("long", "wide")
    assert scheduler.waiting == ("fits",)
    assert drain(scheduler) == ["fits"]
    assert len(scheduler.request("fits").output) == 1


def test_schedule_without_requests_is_an_empty_batch() -> None:
    scheduler = small()
    assert scheduler.schedule() == {}
    assert scheduler.update() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", 0, 5), "prompt_len is 0"),
        (("a", 5, 0), "max_tokens is 0"),
        (("a", -3, 5), "prompt_len is -3"),
        (("a", 2.5, 5), "prompt_len is 2.5"),
        (("a", True, 5), "prompt_len is True"),
        (("a", 5, 2**31), "max_tokens is"),
    ],
)
def test_wrong_counts_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    scheduler = small()
    with pytest.raises(ConfigError, match=message):
        scheduler.add_request(*arguments)
    scheduler.add_request("a", 5, 2)  # nothing of the refused one is left
    assert scheduler.waiting == ("a",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"eos_at": -1},
        {"priority": np.nan},
        {"arrival_time": np.inf},
        {"priority": "high"},
        *({"hash_ids": ids} for ids in (5, None, "abc", b"ab", ["a"], [np.nan])),
        *({"hash_ids": ids} for ids in ([1.5], [2**70], [True], np.array(5))),
        {"hash_ids": np.arange(2, dtype="m8[s]")},
        {"priority": np.timedelta64(3, "s")},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(ConfigError, match=name):
        small().add_request("a", 5, 2, **wrong)


def test_arguments_of_another_kind_are_refused() -> None:
    for wrong in ({"config": {"num_blocks": 3}}, {"sample_fn": 3}, {"eos_token_id": "x"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Scheduler(**wrong)  # pyright: ignore[reportArgumentType]
    scheduler = Scheduler()
    unhashable: Any
    for unhashable in (["a"], (1, ["a"])):
        with pytest.raises(ConfigError, match="cannot be hashed"):
            scheduler.add_request(unhashable, 1, 1)
        with pytest.raises(UnknownNameError):
            scheduler.request(unhashable)
    with pytest.raises(ConfigError, match="priority"):
        scheduler.add_request("a", 1, 1, priority=10**400)
    with pytest.raises(ConfigError, match="priority is True"):
        scheduler.add_request("a", 1, 1, priority=True)


@pytest.mark.parametrize("token", [None, "x", 1.0, True, [1]])
def test_what_is_no_token_is_refused_and_changes_nothing(token: Any) -> None:
    tokens = iter([3, token, 3, 4])
    scheduler = Scheduler(SchedulerConfig(), sample_fn=lambda _: next(tokens))
    for name in ("a", "b"):
        scheduler.add_request(name, 3, 1)
    scheduler.schedule()
    with pytest.raises(ConfigError, match="sample_fn returned"):
        scheduler.update()
    assert scheduler.request("a").output == ()
    assert scheduler.update() == ["a", "b"]
    assert scheduler.request("b").output == (4,)


def test_a_request_that_is_not_there_is_told_with_some_that_are() -> None:
    scheduler = Scheduler()
    for index in range(200):
        scheduler.add_request(index, 1, 1)
    with pytest.raises(UnknownNameError, match=r"no request '1999'.*and 140 more$"):
        scheduler.request(1999)


def test_calls_out_of_turn_are_refused() -> None:
    scheduler = small()
    scheduler.add_request("a", 5, 2)
    with pytest.raises(ConfigError, match=r"call schedule\(\) first"):
        scheduler.update()
    scheduler.schedule()
    with pytest.raises(ConfigError, match=r"call update\(\)"):
        scheduler.schedule()
    with pytest.raises(ConfigError, match="'a' was added before"):
        scheduler.add_request("a", 5, 2)
    with pytest.raises(UnknownNameError, match="no request 'b'"):
        scheduler.request("b")
