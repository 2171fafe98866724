"""Which decodes advance together changes nothing, whoever looks at them and wherever they count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env.config import EnvConfig
from sched_env.engine import kernels
from sched_env.engine.invariants import InvariantError, check_invariants
from sched_env.engine.setup import run_world
from sched_env.engine.world import World
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.workload import synthesize
from tests.engine.switches import random_switches
from tests.env.made_worlds import Driver, make_world, random_config, random_table

_A_LOT = 2**31 - 2_000  # tokens: beyond those, a seat would not hold its number


def move_base(world: World, tokens: int) -> None:
    """Let the cohort of server 0 have been given so many tokens more before its members joined."""
    seats, _ = world.cohort(0)
    seats["num_output_tokens"] -= tokens
    seats["num_computed_tokens"] -= tokens
    world.state["cohort_tokens"] += tokens
    world.state["cohort_ends_at_tokens"] += tokens


def look(world: World) -> None:
    """Look at the running requests, for which all fall out of the cohort."""
    world.seats(0)
    assert world.state[0]["cohort_size"] == 0


def move_far(world: World) -> None:
    """Let the cohort have been given so much that it falls out before others join."""
    if len(world.cohort(0)[0]) and world.state[0]["cohort_tokens"] < 2**30:
        move_base(world, _A_LOT - int(world.state[0]["cohort_tokens"]))


def drivers(seed: int) -> tuple[Driver, Driver]:
    """Return two equal random servers, each at its first decision."""
    rng = np.random.default_rng(seed)
    config = random_config(rng)
    table = random_table(rng, 40)
    pair = Driver(make_world(config, table)), Driver(make_world(config, table))
    for driver in pair:
        driver.world.state["env_seed"] = seed
        driver.world.reset(driver.observations, driver.masks)
    return pair


def tell(driver: Driver) -> bytes:
    buffers = (driver.observations, driver.masks, driver.results)
    return b"".join(one.tobytes() for one in buffers)


@pytest.mark.parametrize("disturb", [look, move_far])
@pytest.mark.parametrize("seed", range(40))
def test_decisions_are_the_same_whatever_becomes_of_the_cohort(seed: int, disturb: Any) -> None:
    driver, other = drivers(seed)
    rng = np.random.default_rng(seed)
    state = driver.world.state[0]
    for _ in range(400):
        assert tell(driver) == tell(other)
        if state["terminated"] or state["truncated"]:
            break
        actions = rng.choice(np.flatnonzero(driver.masks[0]), 1)
        disturb(other.world)
        for one in (driver, other):
            one.world.step(actions, one.outlet)
    look(driver.world)
    look(other.world)
    assert driver.world.requests.tobytes() == other.world.requests.tobytes()


def served(policy: str, seed: int, disturb: Any) -> tuple[World, int]:
    """Serve a random table, one batch after another; return the server and its largest cohort."""
    rng = np.random.default_rng(seed)
    config, table = random_config(rng), random_table(rng, 40)
    key = resolve_policy(policy)
    assert isinstance(key, Heuristic)
    scheduler = config.scheduler.replace(
        num_blocks=200, block_size=4, max_model_len=None, **random_switches(rng, 0.1)
    )
    env = EnvConfig(scheduler=scheduler, cost=config.cost, service=config.service)
    env = env.replace(scheduler=key.on_server(env.scheduler))
    world = run_world(env, table, key, seed=seed, until_s=1e6, num_events=2000)
    kernels.reset_one(world.address)
    largest = 0
    while not kernels.run(world.address, 1):
        largest = max(largest, int(world.state[0]["cohort_size"]))
        disturb(world)
    return world, largest


@pytest.mark.parametrize("policy", ["fcfs", "vtc", "sjf", "no_evict", "least_computed_victim"])
@pytest.mark.parametrize("seed", range(6))
def test_runs_are_the_same_whatever_becomes_of_the_cohort(policy: str, seed: int) -> None:
    plain, largest = served(policy, seed, lambda _: None)
    for disturb in (look, move_far):
        world, _ = served(policy, seed, disturb)
        assert world.events(0).tobytes() == plain.events(0).tobytes()
        assert world.requests.tobytes() == plain.requests.tobytes()
        assert world.itl_counts.tobytes() == plain.itl_counts.tobytes()
    without = plain.state[0]["async_scheduling"] or plain.state[0]["enable_prefix_caching"]
    assert (largest == 0) == bool(without)


def decoding_world() -> World:
    """Return a server whose running requests decode, some of them in the cohort."""
    key = resolve_policy("fcfs")
    assert isinstance(key, Heuristic)
    table = synthesize("chatbot", num_requests=40, rate_rps=20.0, seed=0)
    world = run_world(EnvConfig(), table, key, seed=0, until_s=1e6)
    kernels.reset_one(world.address)
    kernels.run(world.address, 60)
    assert len(world.cohort(0)[0]) > 1
    return world


@pytest.mark.parametrize(
    "name", ["cohort_context_tokens", "cohort_left_tokens", "cohort_ends_at_tokens", "cohort_place"]
)
def test_invariants_notice_wrong_sums(name: str) -> None:
    check_invariants(decoding_world())
    world = decoding_world()
    world.state[name] += 1
    with pytest.raises(InvariantError, match="cohort"):
        check_invariants(world)
