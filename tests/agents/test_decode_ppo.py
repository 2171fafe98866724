"""The teaching environment trains with sb3-contrib's MaskablePPO, as one of many or alone."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy

from sched_env.agents.sb3 import make_sb3_vec_env
from sched_env.errors import UnknownNameError

ID = "sched_env/DecodeScheduling-v0"


def trained(num_updates: int) -> MaskablePPO:
    env = make_sb3_vec_env(None, 16, 0, env_id=ID)
    model = MaskablePPO(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        n_steps=64,
        batch_size=256,
        n_epochs=4,
        gamma=1.0,
        seed=0,
        device="cpu",
    )
    return model.learn(num_updates * 16 * 64)


def mean_return(env: gym.Env[Any, Any], choose: Any, num_episodes: int = 60) -> float:
    total = 0.0
    for seed in range(10_000, 10_000 + num_episodes):
        observation, info = env.reset(seed=seed)
        is_over = False
        while not is_over:
            action = choose(observation, info["action_mask"])
            observation, reward, is_over, _, info = env.step(action)
            assert not info["invalid_action"]
            total += float(reward)
    return total / num_episodes


def test_training_beats_chance_on_episodes_it_has_not_seen() -> None:
    model = trained(12)
    env = gym.make(ID)
    rng = np.random.default_rng(0)
    by_chance = mean_return(env, lambda _, mask: rng.choice(np.flatnonzero(mask)))
    learned = mean_return(
        env,
        lambda seen, mask: model.predict(seen, action_masks=mask, deterministic=True)[0],
    )
    assert learned > by_chance + 0.05


def test_equal_seeds_train_equal_weights() -> None:
    first, second = (trained(2).policy.state_dict() for _ in range(2))
    assert all((first[name] == second[name]).all() for name in first)


def test_it_trains_and_is_evaluated_through_gym_make() -> None:
    model = MaskablePPO("MlpPolicy", gym.make(ID), n_steps=64, batch_size=64, seed=0, device="cpu")
    model.learn(128)
    mean_reward, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=3, warn=False)
    assert -1.5 < mean_reward < 0.5


def test_other_environments_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'sched_env/DecodeScheduling-v0'"):
        make_sb3_vec_env(env_id="sched_env/DecodeSchedule-v0")
