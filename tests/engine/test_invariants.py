"""The invariants notice what they are there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sched_env import Scheduler, SchedulerConfig
from sched_env.engine.invariants import InvariantError, check_invariants
from sched_env.engine.records import FINISHED, PREEMPTED, WAITING
from sched_env.engine.world import World
from tests.env.made_worlds import Driver, make_world, random_config, random_table


def busy_world() -> World:
    """Return a server with requests that wait in the front and the backlog, run and have ended."""
    scheduler = Scheduler(
        SchedulerConfig(max_num_batched_tokens=32, max_num_seqs=4, num_blocks=20, block_size=4)
    )
    for name in range(60):
        scheduler.add_request(name, prompt_len=4 + name % 3, max_tokens=2 + name % 5)
    for _ in range(5):
        scheduler.schedule()
        scheduler.update()
    world = scheduler._world
    state = world.state[0]
    assert state["num_backlog"] > 0
    assert state["num_running"] > 1
    assert scheduler.finished
    check_invariants(world, num_injected=60)
    return world


def set_state(name: str, change: int) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.state[name] += change

    return spoil


def set_seat(name: str, value: Any) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.seats(0)[name][0] = value

    return spoil


def set_row(part: str, name: str, value: Any) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.requests[0, world.live(0, part)["row"][0]][name] = value

    return spoil


def cells(world: World) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of the front and the places that name them, both as views."""
    return world.arrays.front[0], world.arrays.order[0]


def swap_front(world: World) -> None:
    _, order = cells(world)
    order[[0, 1]] = order[[1, 0]].copy()


def lose_one(world: World) -> None:
    _, order = cells(world)
    order[0] = order[1]


def resize_first(world: World) -> None:
    front, order = cells(world)
    front[order[0]["cell"]]["num_tokens"] += 1


def break_heap(world: World) -> None:
    world.arrays.heaps[0, 0]["key"] = 1e9


def overtake(world: World) -> None:
    behind = world.arrays.heaps[0, 0]
    behind["key"] = -1.0


def end_without_leaving(world: World) -> None:
    world.requests[0, world.seats(0)["row"][0]]["status"] = FINISHED


SPOILED = {
    "free": (set_state("free_blocks", 1), "blocks"),
    "over": (set_state("free_blocks", 100), "blocks"),
    "held": (set_seat("num_blocks", 19), "blocks"),
    "waiting holds": (set_row("front", "num_blocks", 1), "blocks"),
    "batch": (set_state("batch_tokens", 1000), "batch"),
    "computed": (set_seat("num_computed_tokens", 99), "progress"),
    "negative": (set_seat("num_computed_tokens", -1), "progress"),
    "late": (set_row("running", "first_token_s", 1e9), "progress"),
    "swap": (swap_front, "order"),
    "heap": (break_heap, "order"),
    "overtake": (overtake, "order"),
    "cell": (resize_first, "front"),
    "lost": (lose_one, "places"),
    "status": (end_without_leaving, "places"),
    "never preempted": (set_row("front", "status", PREEMPTED), "places"),
    "running waits": (set_row("running", "status", WAITING), "places"),
    "count": (set_state("num_waiting", -1), "conservation"),
    "ended": (set_state("num_finished", 1), "conservation"),
    "seats": (lambda world: world.state.__setitem__("max_num_seqs", 1), "seats"),
    "weight": (set_state("waiting_weight", 1), "sums"),
    "preemptions": (set_state("num_preemptions", 1), "sums"),
    "deadlines": (set_state("num_expiries", 10**6), "room"),
}


@pytest.mark.parametrize(("spoil", "rule"), SPOILED.values(), ids=SPOILED.keys())
def test_a_broken_rule_is_named(spoil: Callable[[World], None], rule: str) -> None:
    world = busy_world()
    spoil(world)
    with pytest.raises(InvariantError, match=rf"^{rule}: "):
        check_invariants(world, num_injected=60)


CHANGES = {
    "output lost": ("num_output_tokens", -1),
    "another length": ("prompt_tokens", 1),
    "forgotten": ("num_preemptions", -1),
    "computed lost": ("num_computed_tokens", -1),
}


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_cannot_be_is_noticed(name: str, change: int) -> None:
    world = busy_world()
    running = world.live(0, "running")
    decodes = int(np.flatnonzero(running["num_output_tokens"] > 1)[0])
    before = check_invariants(world, num_injected=60)
    before.requests["num_preemptions"][running["row"][decodes]] += name == "num_preemptions"
    if name != "num_preemptions":
        before.requests[name][running["row"][decodes]] -= change
    with pytest.raises(InvariantError, match=r"^preemption: "):
        check_invariants(world, before=before, num_injected=60)


def test_ended_requests_stay_ended() -> None:
    world = busy_world()
    before = check_invariants(world, num_injected=60)
    row = int(world.live(0, "running")["row"][0])
    before.requests["status"][row] = FINISHED
    with pytest.raises(InvariantError, match="has come back"):
        check_invariants(world, before=before, num_injected=60)


def test_all_blocks_are_free_when_all_have_ended() -> None:
    rng = np.random.default_rng(1)
    driver = Driver(make_world(random_config(rng), random_table(rng, 10)))
    driver.reset(1)
    while not driver.step(3)[1]:
        pass
    last = check_invariants(driver.world)
    assert last.state["free_blocks"] == last.state["num_blocks"] or last.state["truncated"]
