"""Many iterations at once are the same iterations: same events, clock, outcomes and rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.engine.invariants import check_invariants
from sched_env.policy.names import known_policies
from tests.env.made_worlds import Driver, make_world, random_config, random_table


@pytest.fixture(scope="module")
def table() -> RequestTable:
    rng = np.random.default_rng(11)
    count = 150
    return RequestTable.from_columns(
        # Bursts, and quiet times in which a jump can reach far.
        arrival_time_s=np.sort(rng.choice([0.0, 4.0, 9.0], count) + rng.exponential(0.4, count)),
        prompt_tokens=rng.integers(5, 900, count),
        output_tokens=rng.integers(1, 150, count),
    )


def env_with(*, jump_ahead: bool, **service: Any) -> EnvConfig:
    env = EnvConfig()
    return env.replace(
        scheduler=env.scheduler.replace(num_blocks=400, max_num_seqs=16),
        service=env.service.replace(**service),
        episode=env.episode.replace(jump_ahead=jump_ahead),
    )


def assert_same_records(left: Any, right: Any) -> None:
    """Compare by field: equal counts, times to 1e-9."""
    for name in left.dtype.names:
        if left.dtype[name].kind == "f":
            np.testing.assert_allclose(left[name], right[name], rtol=1e-9, err_msg=name)
        else:
            assert np.array_equal(left[name], right[name]), name


@pytest.mark.parametrize("policy", known_policies())
@pytest.mark.parametrize("shed", [False, True])
def test_simulation_is_the_same(table: RequestTable, policy: str, shed: bool) -> None:
    service = {"shed_hopeless": shed, "request_timeout_s": 12.0 if shed else None}
    jump, plain = (
        simulate(
            table,
            policy,
            env_with(jump_ahead=jump_ahead, **service),
            seed=3,
            record_events=True,
        )
        for jump_ahead in (True, False)
    )
    assert_same_records(jump.requests, plain.requests)
    assert jump.events is not None
    assert_same_records(jump.events, plain.events)
    assert jump.num_iterations == plain.num_iterations
    assert np.array_equal(jump.itl_counts, plain.itl_counts)
    for name in ("span_s", "busy_s", "kv_usage_mean", "num_computed_tokens"):
        assert getattr(jump, name) == pytest.approx(getattr(plain, name), rel=1e-9)
    preemptions = jump.preemptions
    assert preemptions is not None
    assert (len(preemptions) > 0) or shed


def driver_of(seed: int, jump_ahead: bool) -> Driver:
    rng = np.random.default_rng([5, seed])
    config = random_config(rng)
    episode = config.episode.replace(jump_ahead=jump_ahead)
    return Driver(make_world(config.replace(episode=episode), random_table(rng, 30)))


@pytest.mark.parametrize("batch", range(4))
def test_rollouts_are_the_same(batch: int) -> None:
    fewer = 0
    for seed in range(batch * 15, batch * 15 + 15):
        jump, plain = driver_of(seed, True), driver_of(seed, False)
        jump.reset(seed)
        plain.reset(seed)
        rng = np.random.default_rng(seed)
        before = None
        returns = np.zeros(2)
        for _ in range(150):
            assert np.array_equal(jump.masks, plain.masks)
            np.testing.assert_allclose(jump.observations, plain.observations, rtol=1e-6)
            before = check_invariants(jump.world, before=before)
            action = int(rng.choice(np.flatnonzero(jump.mask)))
            steps = jump.step(action), plain.step(action)
            assert steps[0] == pytest.approx(steps[1], rel=1e-9, abs=1e-9)
            returns += [step[0] for step in steps]
            if steps[0][1]:
                break
        assert returns[0] == pytest.approx(returns[1], rel=1e-9, abs=1e-9)
        assert jump.state["iteration"] == plain.state["iteration"]
        fewer += jump.state["iteration"] > jump.state["decisions"]
    assert fewer >= 5  # iterations went by without a decision
