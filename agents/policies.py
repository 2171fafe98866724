"""Actor-critic policies for sb3-contrib's MaskablePPO and for plain PPO of stable-baselines3.

Both policy classes hold the same three parts: an actor network (`PointerNet` or `FlatNet`), an
optional `SoftPrior`, and a separate `CriticNet` that alone reads the privileged columns. They are
built from one `PolicySpec`, handed over as ``policy_kwargs={"net_arch": spec}``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from sched_env.agents.networks import CriticNet, FlatNet, ObservationShape, PointerNet
from sched_env.agents.prior import Prior, SoftPrior, SoftScore, make_prior
from sched_env.policy.layers import MASKED_LOGIT

ACTOR_GROUP = "actor"
CRITIC_GROUP = "critic"


@dataclass(frozen=True)
class PolicySpec:
    """What a policy is built from.

    Attributes:
        shape: Sizes of observation and actions.
        network: "pointer" or "mlp".
        hidden_size: Width of the pointer network.
        hidden_sizes: Widths of the flat network's hidden layers.
        critic_sizes: Widths of the critic's hidden layers.
        prior: Numbers of the soft prior, or None.
    """

    shape: ObservationShape
    network: str = "pointer"
    hidden_size: int = 32
    hidden_sizes: tuple[int, ...] = (64, 64)
    critic_sizes: tuple[int, ...] = (64, 64)
    prior: Prior | None = None

    def make_actor(self) -> PointerNet | FlatNet:
        """Return a freshly drawn actor network (torch's global generator draws)."""
        if self.network == "pointer":
            return PointerNet(self.shape, self.hidden_size)
        return FlatNet(self.shape, self.hidden_sizes)


class _ScheduledPolicy:
    """The parts and the arithmetic shared by both policy classes (a mixin)."""

    net_arch: PolicySpec
    optimizer_class: Any
    optimizer_kwargs: dict[str, Any]
    actor: PointerNet | FlatNet
    critic: CriticNet
    prior: SoftPrior | SoftScore | None

    def _build(self, lr_schedule: Schedule) -> None:
        """Create actor, prior, critic and an optimizer with one parameter group for each net."""
        spec = self.net_arch
        self.actor = spec.make_actor()
        self.critic = CriticNet(spec.shape, spec.critic_sizes)
        self.prior = make_prior(spec.shape, spec.prior)
        groups = [
            {"params": list(self.actor.parameters()), "name": ACTOR_GROUP},
            {"params": list(self.critic.parameters()), "name": CRITIC_GROUP},
        ]
        self.optimizer = self.optimizer_class(groups, lr=lr_schedule(1), **self.optimizer_kwargs)

    def masked_logits(self, observations: Tensor, action_masks: Any = None) -> Tensor:
        """Return the logits with the prior added and illegal actions at -1e8.

        Args:
            observations: float32 (batch, num_observed).
            action_masks: (batch, num_actions), nonzero = legal; None = all are legal.

        Returns:
            float32 (batch, num_actions).
        """
        return self._logits(observations, action_masks)[0]

    def _logits(self, observations: Tensor, action_masks: Any) -> tuple[Tensor, Tensor]:
        """Return the masked logits of the policy and those of the prior alone (0 without one)."""
        logits = self.actor(observations)
        masks = torch.ones_like(logits, dtype=torch.bool)
        if action_masks is not None:
            masks = torch.as_tensor(action_masks).reshape(logits.shape).to(torch.bool)
        prior = torch.zeros_like(logits)
        if self.prior is not None:
            prior = self.prior(observations, masks)
        closed = float(MASKED_LOGIT)
        return torch.where(masks, logits + prior, closed), torch.where(masks, prior, closed)

    def forward(
        self, obs: Tensor, deterministic: bool = False, action_masks: Any = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions (batch,), values (batch, 1) and log-probabilities (batch,)."""
        log_probs = torch.log_softmax(self.masked_logits(obs, action_masks), dim=1)
        actions = _choose(log_probs, deterministic)
        chosen = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
        return actions, self.critic(obs), chosen

    def evaluate_actions(
        self, obs: Tensor, actions: Tensor, action_masks: Any = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return values (batch, 1), log-probabilities (batch,) and entropies (batch,).

        With a prior, the entropy is relative to it: minus the KL divergence of the policy from
        the prior, so that an entropy bonus holds the policy near the prior.
        """
        logits, prior = self._logits(obs, action_masks)
        log_probs = torch.log_softmax(logits, dim=1)
        chosen = log_probs.gather(1, actions.long().reshape(-1, 1)).squeeze(1)
        surprise = log_probs
        if self.prior is not None:
            surprise = log_probs - torch.log_softmax(prior, dim=1)
        entropy = -(log_probs.exp() * surprise).sum(dim=1)
        return self.critic(obs), chosen, entropy

    def predict_values(self, obs: Tensor) -> Tensor:
        """Return values, (batch, 1)."""
        return self.critic(obs)

    def _predict(
        self, observation: Tensor, deterministic: bool = False, action_masks: Any = None
    ) -> Tensor:
        """Return actions, (batch,): the first of the largest logits, or a draw."""
        return _choose(self.masked_logits(observation, action_masks), deterministic)


def _choose(logits: Tensor, deterministic: bool) -> Tensor:
    """Return the first index of each row's largest entry, or a draw from the softmax."""
    if deterministic:
        first = np.argmax(logits.detach().cpu().numpy(), axis=1)
        return torch.as_tensor(first, device=logits.device)
    return torch.multinomial(torch.softmax(logits, dim=1), 1).squeeze(1)


class MaskableSchedulingPolicy(_ScheduledPolicy, MaskableActorCriticPolicy):
    """Policy for MaskablePPO: illegal actions have probability zero."""

    def get_distribution(self, obs: Tensor, action_masks: Any = None) -> MaskableDistribution:
        """Return the distribution over actions for ``obs``."""
        logits = self.masked_logits(obs, action_masks)
        distribution = self.action_dist.proba_distribution(action_logits=logits)
        if action_masks is not None:
            distribution.apply_masking(action_masks)
        return distribution


class SchedulingPolicy(_ScheduledPolicy, ActorCriticPolicy):
    """Policy for plain PPO: it sees no mask, and the environment replaces illegal actions."""

    def get_distribution(self, obs: Tensor) -> Distribution:
        """Return the distribution over actions for ``obs``."""
        return self.action_dist.proba_distribution(action_logits=self.masked_logits(obs))


def policy_parts(
    policy: nn.Module,
) -> tuple[PointerNet | FlatNet, SoftPrior | SoftScore | None, PolicySpec]:
    """Return actor, prior and spec of a policy built here."""
    if not isinstance(policy, _ScheduledPolicy):
        raise TypeError(
            f"{type(policy).__name__} is no scheduling policy: build it with "
            "MaskableSchedulingPolicy or SchedulingPolicy"
        )
    return policy.actor, policy.prior, policy.net_arch
