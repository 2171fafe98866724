from __future__ import annotations

import numpy as np
import pytest
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported

from sched_env.agents.sb3 import SchedVecEnv, make_sb3_vec_env
from tests.agents.fake_env import SHAPE, FakeVectorEnv


def _wrapped(num_envs: int = 4, **kwargs: object) -> SchedVecEnv:
    return SchedVecEnv(FakeVectorEnv(num_envs, **kwargs), seed=3)


def _legal(env: SchedVecEnv) -> np.ndarray:
    return env.action_masks().argmax(axis=1)


def _admit(env: SchedVecEnv) -> np.ndarray:
    """Return the last legal admit of each environment, or a proceed where there is none."""
    until = SHAPE.num_levels + SHAPE.num_waiting_slots
    return until - 1 - env.action_masks()[:, :until][:, ::-1].argmax(axis=1)


def test_masks_are_found_by_sb3_contrib_and_belong_to_the_present_states() -> None:
    env = _wrapped()
    env.reset()
    assert is_masking_supported(env)
    assert np.array_equal(get_action_masks(env), env.env.masks == 1)
    env.step(_legal(env))
    assert np.array_equal(get_action_masks(env), env.env.masks == 1)
    assert get_action_masks(env).dtype == bool


def test_what_a_step_returned_stays_as_it_was() -> None:
    env = make_sb3_vec_env(num_envs=3, seed=5)
    told = [env.reset(), env.action_masks(), *env.env_method("action_masks")]
    for _ in range(4):
        observations, rewards, dones, _ = env.step(_legal(env))
        told += [observations, rewards, dones, env.last_rewards, env.action_masks()]
    before = [array.copy() for array in told]
    for _ in range(5):
        env.step(_legal(env))
    assert all(np.array_equal(one, other) for one, other in zip(told, before, strict=True))


def test_only_masks_are_offered_per_environment() -> None:
    env = _wrapped()
    with pytest.raises(AttributeError, match="only 'action_masks'"):
        env.env_method("render")
    assert not env.has_attr("no_such_attribute")


def test_an_end_gives_the_final_observation_statistics_and_the_cause() -> None:
    env = _wrapped(episode_length=2)
    env.reset()
    paid = np.zeros(4)
    for _ in range(2):
        observations, rewards, dones, infos = env.step(_admit(env))
        paid += rewards
    assert dones.all()
    assert (paid != 0).any()
    for index, info in enumerate(infos):
        assert info["TimeLimit.truncated"] is (index % 2 == 0)
        assert info["episode"]["l"] == 2
        assert info["episode"]["r"] == pytest.approx(paid[index], rel=1e-6)
        assert info["goodput_weighted"] == 0.75
        assert info["is_success"] is True
        assert not np.array_equal(info["terminal_observation"], observations[index])


def test_environments_that_go_on_share_one_empty_info() -> None:
    env = _wrapped()
    env.reset()
    _, _, dones, infos = env.step(_legal(env))
    assert not dones.any()
    assert all(info is infos[0] for info in infos)
    assert infos[0] == {}


def test_discounts_rewards_and_invalid_actions_are_kept() -> None:
    env = _wrapped()
    env.reset()
    illegal = np.argmin(env.action_masks(), axis=1)
    is_illegal = ~env.action_masks().all(axis=1)
    _, rewards, _, _ = env.step(illegal)
    assert np.array_equal(env.last_rewards, rewards)
    assert ((env.last_discounts > 0.7) & (env.last_discounts < 1.0)).all()
    assert env.invalid_actions == is_illegal.sum() > 0
    rewards += 1.0
    assert not np.array_equal(env.last_rewards, rewards)


def test_returned_rewards_are_scaled_and_episode_returns_are_not() -> None:
    plain = SchedVecEnv(FakeVectorEnv(4), seed=3)
    scaled = SchedVecEnv(FakeVectorEnv(4), seed=3, normalise_returns=True)
    plain.reset()
    scaled.reset()
    for _ in range(7):
        actions = _admit(plain)
        plain_rewards, plain_infos = plain.step(actions)[1::2]
        scaled_rewards, scaled_infos = scaled.step(actions)[1::2]
    assert np.abs(plain_rewards).max() > 0
    assert np.allclose(scaled_rewards * scaled.normaliser.scale, plain_rewards, atol=1e-6)
    assert [one["episode"]["r"] for one in plain_infos] == [
        one["episode"]["r"] for one in scaled_infos
    ]


def test_a_state_continues_exactly() -> None:
    env = SchedVecEnv(FakeVectorEnv(4), seed=3, normalise_returns=True)
    env.reset()
    for _ in range(5):
        env.step(_legal(env))
    other = SchedVecEnv(FakeVectorEnv(4), seed=9, normalise_returns=True)
    other.reset()
    other.set_state(env.get_state())
    for _ in range(9):
        actions = _legal(env)
        assert np.array_equal(actions, _legal(other))
        ours, theirs = env.step(actions), other.step(actions)
        assert all(np.array_equal(a, b) for a, b in zip(ours[:3], theirs[:3], strict=True))
        assert [one.get("episode", {}).get("r") for one in ours[3]] == [
            one.get("episode", {}).get("r") for one in theirs[3]
        ]


def test_closing_reaches_the_native_environment() -> None:
    env = _wrapped()
    env.close()
    assert env.env.is_closed
