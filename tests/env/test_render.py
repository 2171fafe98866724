"""Pictures of a server, and wrappers of its observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sched_env import ContinuousBatchingEnv
from sched_env.env import DictObservation, MaskInObservation
from tests.env.rollouts import assert_equal, legal_action, rollout


def played(config: Any, render_mode: str | None, steps: int = 40) -> ContinuousBatchingEnv:
    env = ContinuousBatchingEnv(config, render_mode=render_mode)
    _, info = env.reset(seed=1)
    rollout(env, steps, np.random.default_rng(0), info["action_mask"])
    return env


def test_ansi_shows_clock_pool_queue_and_batch(config: Any) -> None:
    env = played(config, "ansi")
    text = env.render()
    state = env.world.state[0]
    used = 120 - int(state["free_blocks"])
    assert f"{used}/120 blocks" in text
    assert f"running {state['num_running']}/8" in text
    assert f"{float(state['clock_s']):.3f} s" in text
    for row in env.world.live(0, "running")["row"]:
        assert f"#{row} " in text


def test_rgb_array_is_a_picture_that_changes(config: Any) -> None:
    env = played(config, "rgb_array")
    frame = env.render()
    assert frame.dtype == np.uint8
    assert frame.ndim == 3
    assert frame.shape[2] == 3
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 5
    env.step(3)
    for _ in range(30):
        env.step(legal_action(np.random.default_rng(0), env.action_masks()))
    assert not np.array_equal(frame, env.render())


def test_human_prints_each_step(config: Any, capsys: Any) -> None:
    played(config, "human", steps=3)
    assert capsys.readouterr().out.count("KV [") == 3


def test_without_a_mode_nothing_is_drawn(config: Any, capsys: Any) -> None:
    env = played(config, None)
    assert env.render() is None
    assert capsys.readouterr().out == ""


def test_mask_in_observation(config: Any) -> None:
    env = MaskInObservation(ContinuousBatchingEnv(config))
    plain = ContinuousBatchingEnv(config)
    (seen, info), (observation, _) = env.reset(seed=1), plain.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert seen in env.observation_space
        assert_equal(seen["observations"], observation)
        assert seen["action_mask"].dtype == np.float32
        assert_equal(seen["action_mask"], info["action_mask"])
        action = legal_action(rng, seen["action_mask"])
        seen, reward, _, _, info = env.step(action)
        observation, expected, *_ = plain.step(action)
        assert reward == expected


def test_dict_observation(config_with: Any) -> None:
    config = config_with(observation={"privileged": True})
    env = DictObservation(ContinuousBatchingEnv(config))
    plain = ContinuousBatchingEnv(config)
    seen, observation = env.reset(seed=1)[0], plain.reset(seed=1)[0]
    assert seen in env.observation_space
    assert seen["slots"].shape == (8, len(plain.layout.slot_features))
    whole = np.concatenate([seen["slots"].ravel(), seen["globals"], seen["privileged"]])
    assert_equal(whole, observation)
    without = DictObservation(ContinuousBatchingEnv(config_with()))
    assert set(without.observation_space.spaces) == {"slots", "globals"}


def test_dict_observation_of_the_teaching_environment() -> None:
    env = DictObservation(gym.make("sched_env/DecodeScheduling-v0"))
    seen, _ = env.reset(seed=1)
    assert set(seen) == {"slots", "globals"}
    assert seen in env.observation_space
    layout = env.get_wrapper_attr("layout")
    assert seen["slots"].shape == (layout.num_slots, len(layout.slot_features))


def test_both_wrappers_together_and_by_spec(config: Any) -> None:
    env = MaskInObservation(
        DictObservation(gym.make("sched_env/ContinuousBatching-v0", config=config))
    )
    seen, _ = env.reset(seed=1)
    assert seen in env.observation_space
    assert set(seen["observations"]) == {"slots", "globals"}
    assert env.spec is not None
    again = gym.make(env.spec)
    assert_equal(again.reset(seed=1)[0], seen)
