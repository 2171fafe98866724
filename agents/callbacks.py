"""What happens beside learning: curves, weight averages, validation, checkpoints, progress."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import yaml
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import HParam

from sched_env.agents.logs import NOT_TABULAR
from sched_env.agents.networks import FlatNet, ObservationShape, PointerNet
from sched_env.agents.policies import policy_parts
from sched_env.agents.sb3 import SchedVecEnv
from sched_env.agents.tags import tag_means
from sched_env.config import ExperimentConfig
from sched_env.config.differences import flatten

HPARAM_METRICS = ("rollout/ep_rew_mean", "eval/goodput_weighted", "train/value_loss")
"""Curves that TensorBoard's HParams page compares runs by."""


class EpisodeMetrics(BaseCallback):
    """Record means over the episodes that ended in a rollout, and what the policy chose.

    Attributes:
        latest: The newest values, by tag.
    """

    def __init__(self, shape: ObservationShape, env: SchedVecEnv) -> None:
        """Keep the sizes by which actions are told apart, and the environments that count."""
        super().__init__()
        self.env = env
        self.shape = shape
        self.ended: list[Mapping[str, Any]] = []
        self.latest: dict[str, float] = {}
        self._invalid_before = 0
        self._steps_before = 0

    def _on_step(self) -> bool:
        if self.locals["dones"].any():
            infos = self.locals["infos"]
            self.ended += [infos[index] for index in np.flatnonzero(self.locals["dones"])]
        return True

    def _on_rollout_end(self) -> None:
        curves = {**tag_means(self.ended), **self._action_rates()}
        for tag, value in curves.items():
            self.logger.record(tag, value)
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.latest = curves
        if returns:
            self.latest["rollout/ep_rew_mean"] = float(np.mean(returns))
        self.ended.clear()

    def _action_rates(self) -> dict[str, float]:
        """Return how often each kind of action was chosen in this rollout."""
        buffer: Any = getattr(self.model, "rollout_buffer")  # noqa: B009  (untyped in the base)
        actions = buffer.actions.reshape(-1)
        first_admit = self.shape.num_levels
        first_preempt = first_admit + self.shape.num_waiting_slots
        invalid, steps = self.env.invalid_actions, self.env.steps
        taken = max(steps - self._steps_before, 1)
        rates = {
            "policy/invalid_action_rate": (invalid - self._invalid_before) / taken,
            "policy/proceed_rate": float(np.mean(actions < first_admit)),
            "policy/full_level_rate": float(np.mean(actions == first_admit - 1)),
            "policy/preempt_rate": float(np.mean(actions >= first_preempt)),
            "policy/discount_mean": float(buffer.discounts.mean()),
        }
        self._invalid_before, self._steps_before = invalid, steps
        return rates


class RunDescription(BaseCallback):
    """Write the resolved configuration as text and as TensorBoard hyperparameters."""

    def __init__(self, experiment: ExperimentConfig) -> None:
        """Keep the configuration."""
        super().__init__()
        self.experiment = experiment

    def _on_training_start(self) -> None:
        text = yaml.safe_dump(self.experiment.to_dict(), sort_keys=False, allow_unicode=True)
        markdown = "".join(f"    {line}\n" for line in text.splitlines())
        self.logger.record("config", markdown, exclude=NOT_TABULAR)
        hparams = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in flatten(self.experiment.to_dict())
        }
        metrics: dict[str, float] = dict.fromkeys(map(str, HPARAM_METRICS), 0.0)
        self.logger.record("hparams", HParam(hparams, metrics), exclude=NOT_TABULAR)
        self.logger.dump(step=self.model.num_timesteps)

    def _on_step(self) -> bool:
        return True


class WeightAverage:
    """A running average of the actor's weights, one step an update."""

    def __init__(self, policy: torch.nn.Module, share_of_old: float) -> None:
        """Start from the present weights; ``share_of_old`` 0 follows the weights themselves."""
        self.share_of_old = share_of_old
        self.weights = actor_weights(policy)

    def update(self, policy: torch.nn.Module) -> None:
        """Move the average towards the present weights."""
        share = self.share_of_old
        for name, new in actor_weights(policy).items():
            self.weights[name] = share * self.weights[name] + (1.0 - share) * new


def actor_weights(policy: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the actor's tensors, by name."""
    actor = policy_parts(policy)[0]
    return {name: tensor.detach().clone() for name, tensor in actor.state_dict().items()}


def with_weights(
    policy: torch.nn.Module, weights: Mapping[str, torch.Tensor]
) -> PointerNet | FlatNet:
    """Return a copy of the actor that holds ``weights``."""
    actor = copy.deepcopy(policy_parts(policy)[0])
    actor.load_state_dict(dict(weights))
    return actor


@dataclass(frozen=True)
class UpdateHook:
    """Something to do after an update.

    Attributes:
        run: Called with the number of decisions so far.
        every_decisions: Call it when this many more were taken since the last call.
    """

    run: Callable[[int], None]
    every_decisions: int = 1


class AfterUpdate(BaseCallback):
    """Call hooks, in their order, after an update of the weights and before the next rollout."""

    def __init__(self, hooks: Sequence[UpdateHook], start: int = 0) -> None:
        """Count from ``start`` decisions; intervals are multiples of decisions, so a run that
        continues calls the hooks where it would have without the interruption.
        """  # noqa: D205
        super().__init__()
        self.hooks = hooks
        self.last = start

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Call the hooks that are due, once for each update."""
        now = self.model.num_timesteps
        if now <= self.last:
            return
        for hook in self.hooks:
            if now // hook.every_decisions > self.last // hook.every_decisions:
                hook.run(now)
        self.last = now
