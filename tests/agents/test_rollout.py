from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sched_env.agents.normaliser import ReturnNormaliser, pairwise_sum
from sched_env.agents.rollout import (
    ElapsedMaskableRolloutBuffer,
    ElapsedRolloutBuffer,
    elapsed_advantages,
)
from tests.agents.fake_env import FakeVectorEnv


class _Source:
    last_discounts = np.ones(1, dtype=np.float32)
    last_rewards = np.zeros(1, dtype=np.float32)


def test_advantages_equal_a_hand_computed_example() -> None:
    # Three decisions of one episode; the second ends nothing, the third is followed by V = 4.
    # discounts 1 (no time passes), 0.5, 0.25; lambda 0.5; rewards 1, 2, 3; values 10, 20, 30.
    # delta_2 = 3 + 0.25 * 4 - 30 = -26
    # delta_1 = 2 + 0.5 * 30 - 20 = -3;   A_1 = -3 + 0.5 * 0.5 * -26 = -9.5
    # delta_0 = 1 + 1 * 20 - 10 = 11;     A_0 = 11 + 1 * 0.5 * -9.5 = 6.25
    advantages = elapsed_advantages(
        rewards=np.array([[1.0], [2.0], [3.0]]),
        values=np.array([[10.0], [20.0], [30.0]]),
        discounts=np.array([[1.0], [0.5], [0.25]]),
        ends=np.zeros((3, 1), dtype=bool),
        last_values=np.array([4.0]),
        gae_lambda=0.5,
    )
    assert advantages[:, 0].tolist() == [6.25, -9.5, -26.0]


def test_nothing_flows_over_the_end_of_an_episode() -> None:
    # A_0 = 1 - 10 = -9 with the end after the first decision; the second starts a new episode:
    # A_1 = 2 + 0.5 * 4 - 20 = -16.
    advantages = elapsed_advantages(
        rewards=np.array([[1.0], [2.0]]),
        values=np.array([[10.0], [20.0]]),
        discounts=np.array([[0.5], [0.5]]),
        ends=np.array([[True], [False]]),
        last_values=np.array([4.0]),
        gae_lambda=0.9,
    )
    assert advantages[:, 0].tolist() == [-9.0, -16.0]


@pytest.mark.parametrize("buffer_class", [ElapsedRolloutBuffer, ElapsedMaskableRolloutBuffer])
def test_a_truncation_is_bootstrapped_once_with_its_own_discount(buffer_class: type) -> None:
    # stable-baselines3 hands over reward + gamma V(final) = 1 + 1 * 6; the step's discount is 0.5,
    # so A = 1 + 0.5 * 6 - 10 = -6 and nothing of the next episode's value 99 enters.
    env, source = FakeVectorEnv(num_envs=1), _Source()
    buffer = buffer_class(
        1,
        env.single_observation_space,
        env.single_action_space,
        "cpu",
        gae_lambda=0.9,
        gamma=1.0,
        n_envs=1,
        discount_source=source,
    )
    source.last_rewards = np.array([1.0], dtype=np.float32)
    source.last_discounts = np.array([0.5], dtype=np.float32)
    observation, _ = env.reset()
    handed_over = np.array([7.0], dtype=np.float32)
    buffer.add(
        observation,
        np.zeros((1, 1)),
        handed_over,
        np.ones(1),
        torch.tensor([[10.0]]),
        torch.zeros(1),
    )
    buffer.compute_returns_and_advantage(torch.tensor([[99.0]]), np.array([True]))
    assert buffer.rewards[0, 0] == 4.0
    assert buffer.advantages[0, 0] == -6.0
    assert buffer.returns[0, 0] == 4.0


def test_a_buffer_without_a_discount_source_says_what_to_pass() -> None:
    env = FakeVectorEnv(num_envs=1)
    buffer = ElapsedRolloutBuffer(1, env.single_observation_space, env.single_action_space, "cpu")
    with pytest.raises(ValueError, match="discount_source"):
        buffer.add(
            env.reset()[0],
            np.zeros((1, 1)),
            np.zeros(1),
            np.ones(1),
            torch.zeros(1),
            torch.zeros(1),
        )


def test_the_normaliser_discounts_the_past_by_the_time_of_the_previous_step() -> None:
    # One environment, rewards 1, 2, 3 and discounts 0.5, 0.25, 1: the backward sums are
    # 1, 2 + 0.5 * 1 = 2.5 and 3 + 0.25 * 2.5 = 3.625.
    normaliser = ReturnNormaliser(1)
    for reward, discount in ((1.0, 0.5), (2.0, 0.25), (3.0, 1.0)):
        scaled = normaliser(np.array([reward]), np.array([discount]), np.array([False]))
    sums = np.array([1.0, 2.5, 3.625])
    assert normaliser.sums[0] == 3.625
    assert normaliser.mean == pytest.approx(sums.mean(), rel=1e-3)
    assert normaliser.variance == pytest.approx(sums.var(), rel=1e-3)
    assert scaled[0] == pytest.approx(3.0 / math.sqrt(sums.var()), rel=1e-3)


@pytest.mark.parametrize("size", [1, 7, 8, 64, 100, 128, 129, 136, 255, 1000, 1024, 5000])
def test_sums_are_those_of_numpy_to_the_last_bit(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.standard_normal(size) * 10.0 ** rng.uniform(-3, 3, size)
    assert pairwise_sum(values) == np.add.reduce(values)


def test_the_normaliser_forgets_the_past_at_an_end_and_continues_from_a_state() -> None:
    first, second = ReturnNormaliser(2), ReturnNormaliser(2)
    rewards, discounts = np.array([1.0, 2.0]), np.array([0.5, 0.5])
    first(rewards, discounts, np.array([True, False]))
    assert first.sums.tolist() == [0.0, 2.0]
    second.set_state(first.get_state())
    ends = np.zeros(2, dtype=bool)
    assert np.array_equal(first(rewards, discounts, ends), second(rewards, discounts, ends))
    assert first.get_state()["moments"].tolist() == second.get_state()["moments"].tolist()
