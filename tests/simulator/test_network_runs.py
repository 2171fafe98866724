"""A whole trace under a policy that decides, as exported networks do."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.engine.layout import FULL_LEVEL, NUM_LEVELS, Layout
from sched_env.engine.records import EVENT_ADMIT, EVENT_ARRIVE, EVENT_FINISH
from sched_env.metrics.conservation import check_records, count_outcomes
from sched_env.simulator import SimulationResult


class Network:
    """Stands for an exported policy: acts on observations and masks."""

    name = "stand_in"
    privileged = False

    def __init__(self, habit: str, seed: int = 0, screen: str = "weighted_sjf") -> None:
        slots = SimpleNamespace(num_waiting_slots=8, num_running_slots=6)
        self.card = SimpleNamespace(observation=slots, screen=screen)
        self.habit = habit
        self.rng = np.random.default_rng(seed)
        self.layout: Layout | None = None

    def check_layout(self, layout: Layout) -> None:
        self.layout = layout
        # It is shown as many slots as it was trained with, whatever the environment says.
        assert (layout.num_waiting_slots, layout.num_running_slots) == (8, 6)

    def act(self, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        assert self.layout is not None
        assert observations.shape == (1, self.layout.size)
        legal = np.flatnonzero(masks[0])
        assert len(legal) > 1  # it is asked only where there is a choice
        if self.habit == "random":
            return np.array([self.rng.choice(legal)])
        if self.habit == "illegal":
            return np.array([int(np.flatnonzero(masks[0] == 0)[0])])
        action = NUM_LEVELS if masks[0, NUM_LEVELS] else FULL_LEVEL
        return np.array([action if masks[0, action] else legal[0]])


def run(table: RequestTable, network: Network, env: EnvConfig | None = None) -> SimulationResult:
    policy: Any = network
    return simulate(table, policy, env or small_env(), seed=3, record_events=True)


def small_env() -> EnvConfig:
    env = EnvConfig()
    return env.replace(scheduler=env.scheduler.replace(num_blocks=200, max_num_seqs=12))


@pytest.fixture(scope="module")
def table() -> RequestTable:
    rng = np.random.default_rng(9)
    return RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 8, 120)),
        prompt_tokens=rng.integers(5, 900, 120),
        output_tokens=rng.integers(1, 120, 120),
    )


@pytest.mark.parametrize("habit", ["head", "random", "illegal"])
def test_nothing_is_lost_whatever_is_decided(table: RequestTable, habit: str) -> None:
    result = run(table, Network(habit))
    check_records(result.requests)
    counts = count_outcomes(result.requests)
    assert counts.num_injected == 120
    assert counts.num_unfinished == 0
    assert counts.num_finished > 10
    assert result.num_decisions > 100
    assert (result.num_invalid_actions > 0) == (habit == "illegal")
    assert result.events is not None
    arrivals = result.events["kind"] == EVENT_ARRIVE
    assert arrivals.sum() == 120


def test_equal_seeds_give_equal_bytes(table: RequestTable) -> None:
    first, again = (run(table, Network("random", seed=1)) for _ in range(2))
    assert first.requests.tobytes() == again.requests.tobytes()
    assert first.events is not None
    assert again.events is not None
    assert first.events.tobytes() == again.events.tobytes()


def test_waiting_requests_are_shown_in_the_order_of_training(table: RequestTable) -> None:
    env = small_env()
    other = env.replace(observation=env.observation.replace(screen="fcfs"))
    by_weight, by_arrival = Network("head"), Network("head", screen="fcfs")
    first, second = (run(table, one, env).requests.tobytes() for one in (by_weight, by_arrival))
    assert first != second
    assert run(table, by_weight, other).requests.tobytes() == first
    assert run(table, by_arrival, other).requests.tobytes() == second


def test_clients_are_those_that_a_heuristic_meets(table: RequestTable) -> None:
    by_network = run(table, Network("head")).requests
    by_key = simulate(table, "fcfs", small_env(), seed=3).requests
    for name in ("service_class", "ttft_slo_s", "predicted_output_tokens"):
        np.testing.assert_array_equal(by_network[name], by_key[name])


def test_log_has_room_where_nothing_is_asked_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3000
    lone = RequestTable.from_columns(
        arrival_time_s=5.0 * np.arange(count),
        prompt_tokens=np.full(count, 20),
        output_tokens=np.full(count, 2),
    )
    module = sys.modules[simulate.__module__]
    monkeypatch.setattr(module, "_FIRST_EVENTS", 1)
    result = run(lone, Network("head"))
    assert result.num_decisions == 0
    assert result.events is not None
    kinds = result.events["kind"]
    assert (kinds == EVENT_ADMIT).sum() == count
    assert (kinds == EVENT_FINISH).sum() == count
    assert len(kinds) == 4 * count
