"""Rollout buffers whose discount is that of the time each decision took.

stable-baselines3 discounts with one constant. Here decision k took ``dt_k`` seconds and is
followed by a state that is worth ``discount_k = exp(-dt_k / tau)`` of its value; lambda acts per
decision::

    delta_k = r_k + discount_k V_{k+1} - V_k
    A_k     = delta_k + discount_k lambda A_{k+1}          (both without the next state at an end)

Where an episode was cut short, stable-baselines3 adds ``gamma V(final observation)`` to the
reward before it stores it; the buffer puts the decision's own discount in gamma's place.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

import numpy as np
import torch
from sb3_contrib.common.maskable.buffers import (
    MaskableRolloutBuffer,
    MaskableRolloutBufferSamples,
)
from stable_baselines3.common.buffers import RolloutBuffer
from torch import Tensor


class DiscountSource(Protocol):
    """A vector environment that tells what the last step paid and how it discounts the future."""

    last_discounts: np.ndarray
    """float32 (num_envs,), exp(-elapsed / tau) of the last step."""

    last_rewards: np.ndarray
    """float32 (num_envs,), rewards of the last step before any bootstrap was added."""


def elapsed_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    discounts: np.ndarray,
    ends: np.ndarray,
    last_values: np.ndarray,
    gae_lambda: float,
) -> np.ndarray:
    """Return generalised advantages with one discount per decision (Schulman et al. 2016).

    Args:
        rewards: float (num_steps, num_envs), a truncation's bootstrap included.
        values: float (num_steps, num_envs), of the states decided in.
        discounts: float (num_steps, num_envs).
        ends: bool (num_steps, num_envs), True where the episode ended with this step.
        last_values: float (num_envs,), of the states after the last step.
        gae_lambda: Weight of longer estimates, per decision.

    Returns:
        float32 (num_steps, num_envs).
    """
    advantages = np.zeros_like(rewards, dtype=np.float32)
    following_values, following = last_values, np.zeros_like(last_values)
    for step in reversed(range(len(rewards))):
        carried = discounts[step] * ~ends[step]
        delta = rewards[step] + carried * following_values - values[step]
        following = delta + carried * gae_lambda * following
        advantages[step] = following
        following_values = values[step]
    return advantages


class ElapsedDiscountBuffer(RolloutBuffer):
    """Keep the discount of every step and use it in place of the constant (a mixin)."""

    def __init__(
        self, *args: Any, discount_source: DiscountSource | None = None, **kwargs: Any
    ) -> None:
        """Take the buffer's own arguments and the environment that tells discounts."""
        self.discount_source = discount_source
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self.discounts = np.ones((self.buffer_size, self.n_envs), dtype=np.float32)

    def _elapsed_reward(self, rewards: np.ndarray) -> np.ndarray:
        """Record the last step's discounts, and return its rewards with the bootstrap rescaled."""
        source = self.discount_source
        if source is None:
            raise ValueError(
                "the rollout buffer has no discount_source: pass "
                'rollout_buffer_kwargs={"discount_source": vec_env}'
            )
        self.discounts[self.pos] = source.last_discounts
        bootstrap = rewards - source.last_rewards
        scale = source.last_discounts / self.gamma
        return np.where(bootstrap != 0, source.last_rewards + scale * bootstrap, rewards)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: np.ndarray) -> None:
        """Fill advantages and returns; see the module for the formulas."""
        ends = np.vstack([self.episode_starts[1:] > 0, np.asarray(dones, dtype=bool)[None]])
        self.advantages = elapsed_advantages(
            self.rewards,
            self.values,
            self.discounts,
            ends,
            last_values.detach().cpu().numpy().flatten(),
            self.gae_lambda,
        )
        self.returns = self.advantages + self.values


class ElapsedRolloutBuffer(ElapsedDiscountBuffer):
    """Rollout buffer for plain PPO.

    Use it as ``PPO(..., gamma=1.0, rollout_buffer_class=ElapsedRolloutBuffer,
    rollout_buffer_kwargs={"discount_source": vec_env})``.
    """

    def add(  # noqa: D102
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        episode_start: np.ndarray,
        value: Tensor,
        log_prob: Tensor,
    ) -> None:
        reward = self._elapsed_reward(reward)
        super().add(obs, action, reward, episode_start, value, log_prob)


class ElapsedMaskableRolloutBuffer(ElapsedDiscountBuffer, MaskableRolloutBuffer):
    """Rollout buffer for MaskablePPO; the masks are stored as bool."""

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self.action_masks = np.ones((self.buffer_size, self.n_envs, self.mask_dims), dtype=bool)

    def add(  # noqa: D102
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().add(obs, action, self._elapsed_reward(reward), *args, **kwargs)

    def get(self, batch_size: int | None = None) -> Generator[Any]:
        """Yield the minibatches of one pass; one decision left over joins those before it.

        MaskablePPO divides advantages by their standard deviation, and one alone has none.
        """
        held: MaskableRolloutBufferSamples | None = None
        for samples in super().get(batch_size):
            if held is not None and len(samples.advantages) == 1:
                parts = zip(held, samples, strict=True)
                held = MaskableRolloutBufferSamples(*map(torch.cat, parts))
                continue
            if held is not None:
                yield held
            held = samples
        if held is not None:
            yield held
