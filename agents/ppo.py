"""PPO, maskable and plain, with the elapsed-time discount and a learning rate for each net."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import Schedule

from sched_env.agents.policies import CRITIC_GROUP
from sched_env.agents.rollout import (
    DiscountSource,
    ElapsedDiscountBuffer,
    ElapsedMaskableRolloutBuffer,
    ElapsedRolloutBuffer,
)


class _ElapsedPPO(OnPolicyAlgorithm):
    """What both algorithms add to stable-baselines3 (a mixin).

    ``gamma`` is 1: the rollout buffer takes each step's discount from the vector environment.
    """

    elapsed_buffer: ClassVar[type[ElapsedDiscountBuffer]]
    """The rollout buffer, unless another one is given."""

    def __init__(
        self,
        *args: Any,
        critic_learning_rate: Schedule | None = None,
        entropy_schedule: Schedule | None = None,
        **kwargs: Any,
    ) -> None:
        """Take PPO's own arguments, and schedules of the critic's rate and of ``ent_coef``."""
        self.critic_schedule = critic_learning_rate
        self.entropy_schedule = entropy_schedule
        kwargs.setdefault("gamma", 1.0)
        kwargs.setdefault("rollout_buffer_class", self.elapsed_buffer)
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        """Build policy and buffer, and tell the buffer where discounts come from."""
        super()._setup_model()
        buffer = self.rollout_buffer
        if self.env is not None and isinstance(buffer, ElapsedDiscountBuffer):
            buffer.discount_source = cast("DiscountSource", self.env.unwrapped)

    def _update_learning_rate(
        self, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer
    ) -> None:
        """Set the actor's rate from its schedule, and what else follows a schedule of its own."""
        super()._update_learning_rate(optimizers)
        if self.entropy_schedule is not None:
            self.ent_coef = self.entropy_schedule(self._current_progress_remaining)
        if self.critic_schedule is None:
            return
        rate = self.critic_schedule(self._current_progress_remaining)
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            for group in optimizer.param_groups:
                if group.get("name") == CRITIC_GROUP:
                    group["lr"] = rate


class ElapsedMaskablePPO(_ElapsedPPO, MaskablePPO):
    """MaskablePPO over a `SchedVecEnv`, discounting by elapsed time."""

    elapsed_buffer = ElapsedMaskableRolloutBuffer


class ElapsedPPO(_ElapsedPPO, PPO):
    """Plain PPO over a `SchedVecEnv`, discounting by elapsed time."""

    elapsed_buffer = ElapsedRolloutBuffer
