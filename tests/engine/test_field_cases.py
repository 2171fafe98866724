"""What went wrong for people in systems like this one; the number is that of the case."""

from __future__ import annotations

from typing import Any

import pytest

from sched_env import Scheduler, SchedulerConfig

Schedule = dict[Any, int]


def run(scheduler: Scheduler) -> tuple[list[Schedule], list[tuple[Any, ...]]]:
    """Run to the end; return the schedule and the preempted of each step."""
    schedules: list[Schedule] = []
    preempted: list[tuple[Any, ...]] = []
    while scheduler.has_unfinished:
        schedules.append(dict(scheduler.schedule()))
        preempted.append(scheduler.preempted)
        scheduler.update()
        assert len(schedules) < 5000
    return schedules, preempted


@pytest.mark.parametrize(
    ("rules", "reserve", "steps", "preemptions", "recomputed"),
    [("vllm", True, 25, 0, 0), ("vllm", False, 25, 5, 295), ("p07", False, 24, 7, 419)],
)
def test_case_3_first_chunk_fits_and_the_whole_prompt_does_not(
    rules: Any, reserve: bool, steps: int, preemptions: int, recomputed: int
) -> None:
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_batched_tokens=32,
            num_blocks=10,
            block_size=16,
            rules=rules,
            reserve_full_isl=reserve,
        )
    )
    scheduler.add_request("A", 80, 16)
    scheduler.add_request("X", 128, 4)
    schedules, preempted = run(scheduler)
    assert len(schedules) == steps
    assert sum(map(len, preempted)) == preemptions
    computed = sum(sum(schedule.values()) for schedule in schedules)
    assert computed - (80 + 15) - (128 + 3) == recomputed


def test_case_4_larger_than_the_pool_is_rejected_with_a_reason() -> None:
    scheduler = Scheduler(SchedulerConfig(num_blocks=8, block_size=16))
    scheduler.add_request("huge", 5000, 10)
    assert scheduler.rejected == ("huge",)
    assert scheduler.request("huge").status == "rejected"
    assert scheduler.request("huge").finish_reason == "too_large"
    assert not scheduler.has_unfinished


def test_case_4_alone_and_out_of_blocks_ends_with_a_reason() -> None:
    scheduler = Scheduler(SchedulerConfig(num_blocks=2, block_size=2))
    scheduler.add_request("grows", 2, 10)
    schedules, preempted = run(scheduler)
    assert schedules == [{"grows": 2}, {"grows": 1}, {"grows": 1}, {}]
    assert not any(preempted)
    view = scheduler.request("grows")
    assert (view.status, view.finish_reason) == ("finished", "kv_capacity")
    assert len(view.output) == 3
    assert scheduler.finished == ("grows",)
    assert scheduler.blocks_used == 0


def test_case_5_loop_over_running_does_not_visit_the_evicted() -> None:
    config = SchedulerConfig(max_num_batched_tokens=64, num_blocks=3, block_size=2)
    scheduler = Scheduler(config)
    scheduler.add_request(0, 2, 3)
    scheduler.add_request(1, 2, 3)
    schedules, preempted = run(scheduler)
    assert schedules == [{0: 2, 1: 2}, {0: 1}, {0: 1}, {1: 3}, {1: 1}]
    assert preempted == [(), (1,), (), (), ()]


def test_case_7_output_survives_preemption() -> None:
    def outputs(num_blocks: int) -> tuple[list[tuple[int, ...]], list[tuple[Any, ...]], int]:
        config = SchedulerConfig(max_num_batched_tokens=64, num_blocks=num_blocks, block_size=16)
        scheduler = Scheduler(
            config, sample_fn=lambda view: 100 * (view.request_id == "b") + len(view.output)
        )
        scheduler.add_request("a", 32, 60)
        scheduler.add_request("b", 32, 60)
        schedules, preempted = run(scheduler)
        computed = sum(sum(schedule.values()) for schedule in schedules)
        return [scheduler.request(name).output for name in "ab"], preempted, computed - 2 * 91

    tight, preempted, recomputed = outputs(8)
    ample, none, _ = outputs(100)
    assert [len(output) for output in tight] == [60, 60]
    assert tight == ample
    assert not any(none)
    assert [step for step, ids in enumerate(preempted) if ids] == [33]
    assert sum(map(len, preempted)) == 1
    assert recomputed == 64


def test_case_11_long_prefill_blocks_a_short_one() -> None:
    scheduler = Scheduler(SchedulerConfig(max_num_batched_tokens=512))
    scheduler.add_request("long", 8192, 4)
    scheduler.add_request("short", 32, 4)
    schedules, _ = run(scheduler)
    first = next(step for step, schedule in enumerate(schedules) if "short" in schedule)
    assert first == 16
    assert schedules[16] == {"long": 1, "short": 32}


def test_case_12_fcfs_stops_at_a_head_that_does_not_fit() -> None:
    scheduler = Scheduler(SchedulerConfig(num_blocks=5, block_size=4))
    for name, prompt in enumerate((9, 9, 1)):
        scheduler.add_request(name, prompt, 2)
    assert scheduler.schedule() == {0: 9}
    assert scheduler.waiting == (1, 2)


@pytest.mark.parametrize("rules", ["vllm", "p07"])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_case_19_seats_are_the_same_for_every_policy(rules: Any, policy: Any) -> None:
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=32, rules=rules, policy=policy))
    for name in range(64):
        scheduler.add_request(name, 20, 5 + name % 7, priority=name % 3)
    most = 0
    while scheduler.has_unfinished:
        assert len(scheduler.schedule()) <= 32
        most = max(most, len(scheduler.running))
        scheduler.update()
    assert most == 32
