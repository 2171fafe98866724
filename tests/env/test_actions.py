"""Illegal actions are counted and replaced, or refused; time never stands still for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import ContinuousBatchingEnv, ContinuousBatchingVectorEnv, RequestTable
from sched_env.errors import ConfigError
from tests.env.made_worlds import Driver, make_world, random_config
from tests.env.rollouts import assert_equal

FULL = 3


def replacement(mask: np.ndarray) -> int:
    return FULL if mask[FULL] else int(np.flatnonzero(mask)[0])


@pytest.mark.parametrize("illegal", ["masked", -1, -7, 12, 10**12, 10**30])
def test_an_illegal_action_is_counted_and_replaced(config: Any, illegal: Any) -> None:
    env, twin = ContinuousBatchingEnv(config), ContinuousBatchingEnv(config)
    mask = env.reset(seed=1)[1]["action_mask"]
    twin.reset(seed=1)
    rng, num_illegal = np.random.default_rng(0), 0
    for _ in range(120):
        is_illegal = rng.random() < 0.5
        legal = action = int(rng.choice(np.flatnonzero(mask)))
        masked = np.flatnonzero(mask == 0)
        if is_illegal:
            legal = replacement(mask)
            action = int(rng.choice(masked)) if illegal == "masked" else illegal
        step, expected = env.step(action), twin.step(legal)
        assert step[4]["invalid_action"] is is_illegal
        num_illegal += is_illegal
        assert_equal(step[:4], expected[:4])
        mask = step[4]["action_mask"]
        if step[2] or step[3]:
            break
    assert num_illegal > 20


@pytest.mark.parametrize("action", [-1, 0, 4, 11, 999])
def test_case_23_one_action_for_ever_never_stops_time(config: Any, action: int) -> None:
    env = ContinuousBatchingEnv(config)
    env.reset(seed=2)
    for _ in range(20_000):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return
    pytest.fail("the episode does not end")


def test_legal_actions_that_take_no_time_run_out(config: Any) -> None:
    env = ContinuousBatchingEnv(config)
    rng = np.random.default_rng(0)
    mask = env.reset(seed=2)[1]["action_mask"]
    without_time = longest = 0
    for _ in range(3000):
        legal = np.flatnonzero(mask)
        # Whatever is not a proceed: admit and preempt as long as it is possible.
        pick = legal[legal > FULL] if (legal > FULL).any() else legal
        _, _, terminated, truncated, info = env.step(int(rng.choice(pick)))
        without_time = without_time + 1 if info["elapsed_s"] == 0.0 else 0
        longest = max(longest, without_time)
        mask = info["action_mask"]
        if terminated or truncated:
            mask = env.reset()[1]["action_mask"]
    assert longest <= 2 * 8 + 5  # no more than the requests that can change their place


@pytest.mark.parametrize("action", [-1, 999])
def test_illegal_actions_are_refused_on_demand(config_with: Any, action: int) -> None:
    config = config_with(episode={"invalid_action": "raise"})
    env = ContinuousBatchingEnv(config)
    mask = env.reset(seed=1)[1]["action_mask"]
    with pytest.raises(ConfigError, match=rf"action {action} \(outside the action space\)"):
        env.step(action)
    masked = int(np.flatnonzero(mask == 0)[0])
    with pytest.raises(ConfigError, match=rf"action {masked} .* is illegal in environment 0"):
        env.step(masked)
    before = env.world.state["decisions"].item()
    env.step(int(np.flatnonzero(mask)[0]))
    assert env.world.state["decisions"].item() == before + 1
    vector = ContinuousBatchingVectorEnv(2, config)
    masks = vector.reset(seed=1)[1]["action_mask"]
    actions = masks.argmax(axis=1)
    actions[1] = action
    with pytest.raises(ConfigError, match="environment 1"):
        vector.step(actions)


@pytest.mark.parametrize("action", [1.5, "admit", None, [1, 2]])
def test_actions_that_are_no_whole_number_are_refused(config: Any, action: Any) -> None:
    env = ContinuousBatchingEnv(config)
    env.reset(seed=1)
    with pytest.raises(ConfigError, match="whole number"):
        env.step(action)


@pytest.mark.parametrize("action", [3, np.int64(3), np.int32(3), np.array(3), np.uint8(3)])
def test_whole_numbers_of_any_type_are_actions(config: Any, action: Any) -> None:
    env, twin = ContinuousBatchingEnv(config), ContinuousBatchingEnv(config)
    env.reset(seed=1)
    twin.reset(seed=1)
    assert_equal(env.step(action)[:4], twin.step(3)[:4])


def test_stepping_before_the_first_reset_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"reset\(\)"):
        ContinuousBatchingEnv(config).step(3)
    with pytest.raises(ConfigError, match=r"reset\(\)"):
        ContinuousBatchingVectorEnv(2, config).step(np.array([3, 3]))


def test_case_13_something_fits_and_nothing_runs_so_doing_nothing_is_illegal() -> None:
    rng = np.random.default_rng(0)
    table = RequestTable.from_columns(  # three at a time, long after the last ones have ended
        arrival_time_s=np.repeat(5.0 * np.arange(8), 3),
        prompt_tokens=rng.integers(2, 12, 24),
        output_tokens=rng.integers(1, 9, 24),
        service_class=np.zeros(24),
    )
    config = random_config(rng)
    config = config.replace(
        scheduler=config.scheduler.replace(max_num_seqs=4, num_blocks=30, block_size=4),
        observation=config.observation.replace(num_waiting_slots=4),
        episode=config.episode.replace(horizon_s=100.0),
    )
    driver = Driver(make_world(config, table))
    driver.reset(1, offset_s=0.0)
    seen, is_over = 0, False
    while not is_over:
        state = driver.state
        if state["num_running"] == 0 and state["num_admitted"] == 0:
            seen += 1
            assert driver.mask[4:8].any()
            assert not driver.mask[:4].any()
        is_over = driver.step(int(rng.choice(np.flatnonzero(driver.mask))))[1]
    assert seen >= 8


def test_case_25_the_horizon_only_truncates_and_the_final_observation_is_of_its_end(
    config: Any,
) -> None:
    env = ContinuousBatchingEnv(config)
    vector = ContinuousBatchingVectorEnv(1, config, autoreset_mode="SameStep")
    env.reset(seed=1)
    vector.reset(seed=1)
    while True:
        observation, _, terminated, truncated, _ = env.step(FULL)
        *_, infos = vector.step(np.array([FULL]))
        if terminated or truncated:
            break
        assert "final_obs" not in infos
    assert (terminated, truncated) == (False, True)
    assert_equal(infos["final_obs"][0], observation)
    # What it shows is the server at its end: its ledger is that of what runs now.
    state = env.world.state[0]
    running = env.world.live(0, "running")
    left = running["prompt_tokens"] + running["num_output_tokens"] - running["num_computed_tokens"]
    assert state["ledger_tokens"] == max(512 - left.sum(), 0)


def test_case_27_mistakes_of_users_raise_and_states_of_the_simulation_do_not(
    config_with: Any,
) -> None:
    with pytest.raises(ConfigError, match="num_seqs"):
        ContinuousBatchingEnv(config_with(scheduler={"max_num_seqs": -1}))
    with pytest.raises(ConfigError, match="horizon_s"):
        ContinuousBatchingEnv(config_with(episode={"horizon_s": 0}))
    # A pool so small that most requests are rejected and the others run out of blocks.
    env = ContinuousBatchingEnv(config_with(scheduler={"num_blocks": 2}))
    mask = env.reset(seed=1)[1]["action_mask"]
    for _ in range(500):
        _, _, terminated, truncated, info = env.step(int(np.flatnonzero(mask)[-1]))
        mask = info["action_mask"]
        assert mask.any()
        if terminated or truncated:
            mask = env.reset()[1]["action_mask"]
