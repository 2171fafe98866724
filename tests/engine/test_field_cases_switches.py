"""What went wrong for people in systems like this one, where a switch is the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, Scheduler, SchedulerConfig, simulate
from sched_env.engine.records import FINISH_REASON_NAMES
from tests.engine.test_field_cases import run


def steps_until_scheduled(scheduler: Scheduler, name: str) -> int:
    step = 0
    while name not in scheduler.schedule():
        scheduler.update()
        step += 1
        assert step < 500
    return step


@pytest.mark.parametrize(("preemptive", "step"), [(False, 45), (True, 0)])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_case_1_priority_inversion(preemptive: bool, step: int, policy: Any) -> None:
    config = SchedulerConfig(max_num_seqs=2, policy=policy, preemptive_priority=preemptive)
    scheduler = Scheduler(config)
    for i, name in enumerate(("L1", "L2")):
        scheduler.add_request(name, 8, 50, priority=0, arrival_time=i)
    for _ in range(5):
        scheduler.schedule()
        scheduler.update()
    scheduler.add_request("H", 8, 10, priority=1, arrival_time=5)
    assert steps_until_scheduled(scheduler, "H") == step
    assert scheduler.preempted == (("L2",) if preemptive else ())
    if preemptive:
        assert len(scheduler.request("L2").output) == 5


def test_case_1_equal_priority_never_preempts() -> None:
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=1, preemptive_priority=True))
    scheduler.add_request("A", 8, 5, priority=1)
    scheduler.schedule()
    scheduler.update()
    scheduler.add_request("B", 8, 5, priority=1, arrival_time=-1)
    assert "B" not in scheduler.schedule()
    assert scheduler.preempted == ()


def test_case_1_nobody_is_evicted_in_vain() -> None:
    config = SchedulerConfig(num_blocks=10, block_size=4, preemptive_priority=True)
    scheduler = Scheduler(config)
    scheduler.add_request("low", 8, 50, priority=0)
    scheduler.add_request("same", 20, 50, priority=1)
    scheduler.schedule()
    scheduler.update()
    scheduler.add_request("high", 24, 5, priority=1)  # would fit only without "same"
    assert "high" not in scheduler.schedule()
    assert scheduler.preempted == ()


@pytest.mark.parametrize("resume_first", [False, True])
def test_case_1_nobody_is_evicted_for_a_prompt_that_no_batch_takes(resume_first: bool) -> None:
    config = SchedulerConfig(
        max_num_batched_tokens=16,
        enable_chunked_prefill=False,
        enable_prefix_caching=True,  # so that the prompt might be known by the time
        preemptive_priority=True,
        resume_first=resume_first,
    )
    scheduler = Scheduler(config)
    scheduler.add_request("low", 11, 3, priority=0)
    scheduler.add_request("long", 78, 5, priority=2)
    for _ in range(6):
        scheduler.schedule()
        assert scheduler.preempted == ()
        scheduler.update()
    assert not scheduler.has_unfinished
    assert (scheduler.finished, scheduler.rejected) == (("low",), ("long",))


@pytest.mark.parametrize(("resume_first", "first"), [(False, "B"), (True, "A")])
def test_case_2_a_preempted_request_behind_an_earlier_one(resume_first: bool, first: str) -> None:
    config = SchedulerConfig(
        policy="priority",
        max_num_seqs=1,
        resume_first=resume_first,
        preemptive_priority=True,
    )
    scheduler = Scheduler(config)
    scheduler.add_request("A", 4, 20, arrival_time=2)
    scheduler.schedule()
    scheduler.update()
    scheduler.add_request("H", 4, 1, priority=9, arrival_time=3)
    scheduler.add_request("B", 4, 20, arrival_time=1)
    assert "H" in scheduler.schedule()
    assert scheduler.preempted == ("A",)
    scheduler.update()
    assert list(scheduler.schedule()) == [first]


@pytest.mark.parametrize(("tie", "ends"), [("first", False), ("last", True)])
def test_case_8_the_livelock_of_vllm(tie: Any, ends: bool) -> None:
    scheduler = Scheduler(
        SchedulerConfig(
            policy="priority",
            max_num_batched_tokens=5,
            max_num_seqs=2,
            num_blocks=10,
            block_size=2,
            max_model_len=20,
            reserve_full_isl=False,
            long_prefill_token_threshold=3,
            victim_tie=tie,
        )
    )
    scheduler.add_request(0, 4, 11)
    scheduler.add_request(1, 18, 1)
    schedules, _ = run(scheduler)
    reasons = {scheduler.request(i).finish_reason for i in range(2)}
    assert ("no_progress" in reasons) != ends
    assert len(schedules) < 2000
    assert (len(schedules) < 60) == ends


def pressed(num_blocks: int, victim: str | None) -> tuple[float, int]:
    """Return the recompute tax and the preemptions of a workload under KV pressure."""
    rng = np.random.default_rng(4)
    count = 300
    table = RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 10, count)),
        prompt_tokens=rng.integers(50, 500, count),
        output_tokens=rng.integers(50, 300, count),
    )
    env = EnvConfig()
    env = env.replace(
        scheduler=env.scheduler.replace(
            num_blocks=num_blocks, max_num_seqs=256, victim=victim, max_num_batched_tokens=512
        ),
        service=env.service.replace(shed_hopeless=False),
    )
    result = simulate(table, "fcfs", env)
    again = int(result.requests["num_recomputed_tokens"].sum())
    return again / result.num_computed_tokens, int(result.requests["num_preemptions"].sum())


def test_case_9_waste_rises_as_the_pool_shrinks() -> None:
    taxes = [pressed(num_blocks, None)[0] for num_blocks in (6000, 2800, 1600, 800, 400)]
    assert taxes[0] == 0.0
    assert taxes == sorted(taxes)
    assert taxes[-1] > 0.02


def test_case_9_least_computed_wastes_least() -> None:
    taxes = {rule: pressed(800, rule)[0] for rule in ("least_computed", "tail", "random")}
    assert taxes["least_computed"] < taxes["tail"]
    assert taxes["least_computed"] < taxes["random"]


def test_case_11_the_threshold_lets_a_short_prompt_through() -> None:
    for threshold, step in ((0, 16), (256, 0)):
        config = SchedulerConfig(max_num_batched_tokens=512, long_prefill_token_threshold=threshold)
        scheduler = Scheduler(config)
        scheduler.add_request("long", 8192, 4)
        scheduler.add_request("short", 32, 4)
        assert steps_until_scheduled(scheduler, "short") == step


def test_case_12_others_pass_a_head_that_does_not_fit_but_not_for_ever() -> None:
    config = SchedulerConfig(num_blocks=5, block_size=4, skip_ahead=2)
    scheduler = Scheduler(config)
    for name, prompt in enumerate((9, 9, 1)):
        scheduler.add_request(name, prompt, 3)
    assert scheduler.schedule() == {0: 9, 2: 1}
    scheduler.update()
    passed = {2}
    for name in range(3, 20):
        scheduler.add_request(name, 1, 1)
        batch = scheduler.schedule()
        scheduler.update()
        if 1 in batch:
            break
        passed |= set(batch) - {0}
    assert 1 in batch
    assert passed == {2, 3}


def test_no_evict_never_preempts() -> None:
    for no_evict in ("off", "max"):
        scheduler = Scheduler(
            SchedulerConfig(num_blocks=12, block_size=4, max_num_seqs=8, no_evict=no_evict)
        )
        for name in range(6):
            scheduler.add_request(name, 6, 14)
        _, preempted = run(scheduler)
        assert (sum(map(len, preempted)) == 0) == (no_evict == "max")


def test_swap_keeps_progress_and_pays_for_the_move() -> None:
    rng = np.random.default_rng(0)
    table = RequestTable.from_columns(
        arrival_time_s=np.zeros(20),
        prompt_tokens=rng.integers(100, 200, 20),
        output_tokens=rng.integers(100, 200, 20),
    )
    env = EnvConfig()
    env = env.replace(service=env.service.replace(shed_hopeless=False))

    def span_s(**switches: Any) -> tuple[float, int, int]:
        scheduler = env.scheduler.replace(num_blocks=150, **switches)
        result = simulate(table, "fcfs", env.replace(scheduler=scheduler))
        recomputed = int(result.requests["num_recomputed_tokens"].sum())
        return result.span_s, recomputed, int(result.requests["num_preemptions"].sum())

    _, recomputed, _ = span_s()
    free_s, kept, num_preemptions = span_s(preemption="swap")
    paid_s, _, _ = span_s(preemption="swap", swap_s_per_block=0.01)
    assert recomputed > 0
    assert kept == 0
    assert num_preemptions > 0
    assert paid_s > free_s + 0.01 * num_preemptions


def test_a_batch_that_no_prompt_fits_does_not_spin() -> None:
    config = SchedulerConfig(max_num_batched_tokens=16, enable_chunked_prefill=False)
    scheduler = Scheduler(config)
    scheduler.add_request("long", 17, 4)
    scheduler.add_request("fits", 16, 4)
    run(scheduler)
    assert scheduler.rejected == ("long",)
    # With its outputs the other never fits again either, but it is never preempted.
    assert scheduler.request("fits").finish_reason == "length"
    assert "no_progress" in FINISH_REASON_NAMES


def test_who_evicts_from_far_behind_gets_the_seat() -> None:
    """The victim comes back before it, into a front that is full, and pushes nobody out of it."""
    scheduler = Scheduler(
        SchedulerConfig(max_num_seqs=1, num_blocks=100, preemptive_priority=True, skip_ahead=50)
    )
    scheduler.add_request("long", 10, 30)
    scheduler.schedule()
    scheduler.update()
    for number in range(60):
        scheduler.add_request(
            number, 10, 2, priority=float(number == 31), arrival_time=1.0 + number
        )
    assert list(scheduler.schedule()) == [31]
    assert scheduler.preempted == ("long",)
    scheduler.update()
    run(scheduler)
    assert len(scheduler.finished) == 61
