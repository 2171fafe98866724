"""Whatever the switches: states hold together, runs end, outputs are what they would have been."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, Scheduler, SchedulerConfig, simulate
from sched_env.engine.invariants import check_invariants
from sched_env.workload.hash_ids import HashIds
from tests.engine.switches import random_switches
from tests.engine.test_jump_ahead import assert_same_records
from tests.env.made_worlds import Driver, make_world, random_config, random_table


def with_content(rng: np.random.Generator, table: RequestTable, block_size: int) -> RequestTable:
    """Give the prompts of a table ids, of which some begin alike."""
    rows = []
    for prompt in table.prompt_tokens:
        count = -(-int(prompt) // block_size)
        shared = int(rng.integers(0, count + 1))
        rows.append([*range(shared), *rng.integers(1000, 10**6, count - shared).tolist()])
    return table.with_columns(hash_ids=HashIds.from_lists(rows, block_size))


def random_env(rng: np.random.Generator) -> tuple[EnvConfig, RequestTable]:
    config = random_config(rng)
    scheduler = config.scheduler.replace(**random_switches(rng))
    longest = max(scheduler.num_blocks * scheduler.block_size // 2, 2)
    table = with_content(rng, random_table(rng, longest), scheduler.block_size)
    return config.replace(scheduler=scheduler), table


@pytest.mark.parametrize("batch", range(4))
def test_states_hold_together_under_any_decisions(batch: int) -> None:
    for number in range(40):
        rng = np.random.default_rng([batch, number])
        config, table = random_env(rng)
        world = make_world(config, table)
        driver = Driver(world)
        driver.reset(seed=number, offset_s=0.0)
        before = check_invariants(world)
        is_over = False
        for _ in range(300):
            if is_over:
                break
            action = int(rng.choice(np.flatnonzero(driver.mask)))
            _, is_over, _, _, _ = driver.step(action)
            before = check_invariants(world, before=before)


@pytest.mark.parametrize("batch", range(4))
def test_a_run_ends_and_counts_every_request(batch: int) -> None:
    policies = ("fcfs", "aging", "weighted_sjf")
    for number in range(40):
        rng = np.random.default_rng([batch, number, 1])
        config, table = random_env(rng)
        config = config.replace(observation=config.observation.replace(privileged=False))
        policy = policies[number % len(policies)]
        results = [
            simulate(
                table,
                policy,
                config.replace(episode=config.episode.replace(jump_ahead=jump_ahead)),
                seed=number,
                record_events=True,
            )
            for jump_ahead in (True, False)
        ]
        requests = results[0].requests
        assert np.all(requests["finish_reason"] > 0)
        finished = requests[requests["status"] == 3]
        kept = (finished["finish_reason"] != 4) & (finished["finish_reason"] != 8)
        assert np.array_equal(finished["num_output_tokens"][kept], finished["stop_at_tokens"][kept])
        assert_same_records(requests, results[1].requests)
        assert_same_records(results[0].events, results[1].events)


def outputs_of(config: SchedulerConfig, requests: list[tuple[int, int, int]]) -> dict[int, Any]:
    """Return the output of each request that came to its natural end."""
    scheduler = Scheduler(
        config, sample_fn=lambda view: 1000 * int(view.request_id) + len(view.output)
    )
    for i, (prompt, length, priority) in enumerate(requests):
        scheduler.add_request(i, prompt, length, priority=priority, arrival_time=i)
    in_flight = 0
    while scheduler.has_unfinished or in_flight:
        was_live = scheduler.has_unfinished
        if was_live:
            scheduler.schedule()
            in_flight += 1
        if in_flight == (2 if config.async_scheduling else 1) or not was_live:
            scheduler.update()
            in_flight -= 1
    views = [scheduler.request(i) for i in range(len(requests))]
    return {i: view.output for i, view in enumerate(views) if view.finish_reason == "length"}


@pytest.mark.parametrize("batch", range(4))
def test_outputs_are_those_of_a_run_without_preemption(batch: int) -> None:
    num_compared = 0
    for number in range(40):
        rng = np.random.default_rng([batch, number, 2])
        requests = [
            (int(rng.integers(1, 30)), int(rng.integers(1, 25)), int(rng.integers(0, 3)))
            for _ in range(12)
        ]
        sizes = {"max_num_batched_tokens": 32, "max_num_seqs": 6, "block_size": 4}
        ample = outputs_of(SchedulerConfig(**sizes, num_blocks=1000), requests)
        assert len(ample) == len(requests)
        switches = random_switches(rng)
        tight = outputs_of(SchedulerConfig(**sizes, num_blocks=15, **switches), requests)
        assert tight == {i: ample[i] for i in tight}
        num_compared += len(tight)
    assert num_compared > 400
