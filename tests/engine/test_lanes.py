"""A queue of lanes is served in the order of the full sort, to the last byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sched_env import simulator
from sched_env.config import EnvConfig
from sched_env.engine.queue_records import MOST_LANES
from sched_env.engine.setup import run_world
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.workload import RequestTable, synthesize

WITH_LANES = ("aging", "cache_aware", "mlfq", "vtc")


def busy_table(seed: int, count: int = 300, num_priorities: int = 0) -> RequestTable:
    rng = np.random.default_rng(seed)
    times = np.sort(np.round(rng.uniform(0, rng.choice([2.0, 20.0]), count), int(rng.integers(4))))
    priority = rng.integers(1, num_priorities + 1, count) if num_priorities else np.zeros(count)
    return synthesize("chatbot", num_requests=count, rate_rps=10.0, seed=seed).with_columns(
        arrival_time_s=times,
        prompt_tokens=rng.integers(1, 700, count),
        output_tokens=rng.integers(1, 120, count),
        priority=priority.astype(np.float64),
    )


def random_server(seed: int) -> EnvConfig:
    rng = np.random.default_rng(1000 + seed)
    return EnvConfig(
        scheduler={
            "max_num_seqs": int(rng.integers(1, 24)),
            "num_blocks": int(rng.integers(60, 200)),
            "max_num_batched_tokens": int(rng.choice([64, 256, 2048])),
            "victim": str(rng.choice(["tail", "random", "least_computed"])),
            "readmit_after_preemption": bool(rng.integers(2)),
            "preemption": str(rng.choice(["recompute", "swap"])),
        },
        service={
            "shed_hopeless": bool(rng.integers(2)),
            "request_timeout_s": [None, 8.0][int(rng.integers(2))],
        },
    )


def assert_served_alike(table: RequestTable, with_lanes: Heuristic, env: EnvConfig) -> Any:
    sorted_anew = replace(with_lanes, lane=None)
    results = [
        simulator.simulate(table, policy, env, record_events=True)
        for policy in (with_lanes, sorted_anew)
    ]
    assert results[0].events.tobytes() == results[1].events.tobytes()
    assert results[0].requests.tobytes() == results[1].requests.tobytes()
    return results[0]


@pytest.mark.parametrize("name", WITH_LANES)
def test_lanes_serve_as_the_full_sort_does(name: str) -> None:
    policy = resolve_policy(name)
    assert isinstance(policy, Heuristic)
    assert policy.lane is not None
    preempted = 0
    for seed in range(12):
        result = assert_served_alike(busy_table(seed), policy, random_server(seed))
        preempted += int(result.requests["num_preemptions"].sum())
    assert preempted > 100


def _priority(request: Any, now: float) -> tuple[float, float]:
    return request.priority, 0.0


def _aging(request: Any, now: float) -> tuple[float, float]:
    return -(request.priority + (now - request.arrival_time_s) // 0.25), request.arrival_time_s


quick_aging = Heuristic("quick_aging", _aging, lane=_priority)


@pytest.mark.parametrize("num_priorities", [MOST_LANES - 1, 3 * MOST_LANES])
@pytest.mark.parametrize("seed", range(3))
def test_more_lanes_than_there_is_room_for_are_sorted(seed: int, num_priorities: int) -> None:
    table = busy_table(seed, num_priorities=num_priorities)
    env = random_server(seed)
    lenient = env.replace(service={"shed_hopeless": False, "request_timeout_s": None})
    assert_served_alike(table, quick_aging, lenient)


@pytest.mark.parametrize(
    "switch",
    [
        {"skip_ahead": 2},
        {"async_scheduling": True},
        {"preemptive_priority": True},
        {"resume_first": True},
        {"enable_prefix_caching": True},
    ],
)
def test_rules_that_look_beyond_the_head_have_no_lanes(switch: dict[str, Any]) -> None:
    table = busy_table(0)
    for scheduler, expected in (({}, 1), (switch, 0)):
        env = EnvConfig(scheduler=scheduler)
        world = run_world(env, table, quick_aging, seed=0, until_s=9.0, shows_requests=False)
        assert world.state[0]["may_have_lanes"] == expected
    world = run_world(EnvConfig(), table, quick_aging, seed=0, until_s=9.0)
    assert world.state[0]["may_have_lanes"] == 0
