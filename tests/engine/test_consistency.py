"""Decisions that copy the scheduler's own rules serve as the scheduler does.

Admitting the head until it does not fit, full prefill and tail victims is fcfs, wherever nothing is
preempted (the decision process puts decoding requests first, so the order of victims may differ).
"""

from __future__ import annotations

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.engine.layout import FULL_LEVEL, NUM_LEVELS
from sched_env.simulator import SimulationResult
from sched_env.workload.counter_rng import mix
from tests.env.made_worlds import Driver, make_world

COMPARED = (
    "first_scheduled_s",
    "first_token_s",
    "finish_s",
    "num_output_tokens",
    "status",
    "finish_reason",
    "num_preemptions",
)


def random_table(rng: np.random.Generator) -> RequestTable:
    count = 120
    times = np.sort(rng.uniform(0, float(rng.choice([0.5, 5.0, 20.0])), count))
    return RequestTable.from_columns(
        arrival_time_s=times - times[0],
        prompt_tokens=rng.integers(1, 1500, count),
        output_tokens=rng.integers(1, 80, count),
    )


def fcfs_by_decisions(env: EnvConfig, table: RequestTable, seed: int) -> np.ndarray:
    """Return the outcomes of an episode in which the head is admitted until it does not fit."""
    driver = Driver(make_world(env, table))
    driver.reset(seed, offset_s=0.0)
    head = NUM_LEVELS
    is_over = bool(driver.state["terminated"])
    while not is_over:
        legal = np.flatnonzero(driver.mask)
        action = next((one for one in (head, FULL_LEVEL) if one in legal), legal[0])
        is_over = driver.step(int(action))[1]
    assert driver.state["terminated"]
    return driver.world.requests[0, : len(table)]


def env_with(rng: np.random.Generator, *, shed: bool, num_blocks: int) -> EnvConfig:
    env = EnvConfig()
    return env.replace(
        scheduler=env.scheduler.replace(
            max_num_batched_tokens=int(rng.choice([256, 700, 2048])),
            max_num_seqs=int(rng.choice([4, 16, 64])),
            num_blocks=num_blocks,
        ),
        service=env.service.replace(shed_hopeless=shed),
        observation=env.observation.replace(screen="fcfs"),
        episode=env.episode.replace(horizon_s=1e6, load=None),
    )


@pytest.mark.parametrize("shed", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_without_preemption_both_serve_alike(seed: int, shed: bool) -> None:
    rng = np.random.default_rng([2, seed])
    env, table = env_with(rng, shed=shed, num_blocks=100_000), random_table(rng)
    outcomes = fcfs_by_decisions(env, table, seed)
    expected: SimulationResult = simulate(table, "fcfs", env, seed=mix(seed, 0))
    assert not expected.requests["num_preemptions"].any()
    for name in COMPARED:
        np.testing.assert_array_equal(outcomes[name], expected.requests[name], err_msg=name)


def test_with_a_small_pool_the_outputs_are_the_same_all_the_same() -> None:
    rng = np.random.default_rng(4)
    env, table = env_with(rng, shed=False, num_blocks=150), random_table(rng)
    outcomes = fcfs_by_decisions(env, table, 4)
    expected = simulate(table, "fcfs", env, seed=mix(4, 0)).requests
    assert outcomes["num_preemptions"].sum() > 0
    for name in ("num_output_tokens", "status", "finish_reason"):
        np.testing.assert_array_equal(outcomes[name], expected[name], err_msg=name)
