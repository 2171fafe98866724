"""The soft prior in torch: a heuristic written as logits, added to those of the network.

The formulas stand in `sched_env.policy.prior`, whose numbers (`PriorParameters`) are used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from sched_env.agents.networks import ObservationShape
from sched_env.policy.linear_score import BELOW_WATERMARK
from sched_env.policy.prior import PriorParameters


@dataclass(frozen=True, eq=False)
class ScoreParameters:
    """A linear score as a prior.

    Attributes:
        strength: Logits per unit of score below the best action.
        floor: No action falls further than this behind the best.
        size_feature: Slot feature with a request's blocks over the pool.
        free_feature: Global with the free blocks over the pool.
        weights: Tensors of the score, float32, by name.
    """

    strength: float
    floor: float
    size_feature: int
    free_feature: int
    weights: Mapping[str, np.ndarray] = field(repr=False)


Prior = PriorParameters | ScoreParameters


def make_prior(shape: ObservationShape, parameters: Prior | None) -> SoftPrior | SoftScore | None:
    """Return the module of a prior, or None where there is none."""
    if parameters is None:
        return None
    if isinstance(parameters, ScoreParameters):
        return SoftScore(shape, parameters)
    return SoftPrior(shape, parameters)


class SoftScore(nn.Module):
    """Add a softened linear score over the legal actions; it has no parameters to train."""

    admit_weight: Tensor
    admit_bias: Tensor
    preempt_weight: Tensor
    preempt_bias: Tensor
    proceed_weight: Tensor
    proceed_bias: Tensor
    watermark: Tensor

    def __init__(self, shape: ObservationShape, parameters: ScoreParameters) -> None:
        """Keep the sizes and the tensors of the score."""
        super().__init__()
        self.shape = shape
        self.given = parameters
        for name, array in parameters.weights.items():
            tensor = torch.from_numpy(np.array(array, np.float32))
            self.register_buffer(name.replace(".", "_"), tensor, persistent=False)

    def forward(self, observations: Tensor, masks: Tensor) -> Tensor:
        """Return the prior logits, (batch, num_actions); zero where an action is illegal.

        Args:
            observations: (batch, num_observed).
            masks: bool (batch, num_actions), True = legal.
        """
        scores = self._scores(observations).masked_fill(~masks, -torch.inf)
        gaps = self.given.strength * (scores - scores.amax(1, keepdim=True))
        return gaps.clamp(min=self.given.floor).masked_fill(~masks, 0.0)

    def _scores(self, observations: Tensor) -> Tensor:
        """Return the logits of the score, (batch, num_actions)."""
        shape, last = self.shape, self.shape.num_waiting_slots
        slots = shape.slots(observations)
        seen = observations[:, shape.num_slot_columns : shape.num_public]
        left = seen[:, self.given.free_feature, None] - slots[:, :last, self.given.size_feature]
        admit = slots[:, :last] @ self.admit_weight + self.admit_bias
        admit = admit + (left < self.watermark) * float(BELOW_WATERMARK)
        preempt = slots[:, last:] @ self.preempt_weight + self.preempt_bias
        return torch.cat([seen @ self.proceed_weight + self.proceed_bias, admit, preempt], dim=1)


class SoftPrior(nn.Module):
    """Add a heuristic's logits over the legal actions; it has no parameters to train."""

    def __init__(self, shape: ObservationShape, parameters: PriorParameters) -> None:
        """Keep the sizes and the numbers of the prior."""
        super().__init__()
        self.shape = shape
        self.score_feature = int(parameters.score_feature)
        self.strength = float(parameters.strength)
        self.floor = float(parameters.floor)
        self.proceed_stop = float(parameters.proceed_stop)
        self.proceed_go = float(parameters.proceed_go)
        self.lower_level = float(parameters.lower_level)
        self.hold_prefill = float(parameters.hold_prefill)
        self.preempt_bias = float(parameters.preempt_bias)
        self.score_scale = float(parameters.score_scale)

    def forward(self, observations: Tensor, masks: Tensor) -> Tensor:
        """Return the prior logits, (batch, num_actions); zero where an action is illegal.

        Args:
            observations: (batch, num_observed).
            masks: bool (batch, num_actions), True = legal.
        """
        shape = self.shape
        scores = self.score_scale * shape.slots(observations)[:, :, self.score_feature]
        legal = masks[:, shape.num_levels :]
        last = shape.num_waiting_slots
        best = scores[:, :last].masked_fill(~legal[:, :last], -torch.inf).amax(1, keepdim=True)
        worst = scores[:, last:].masked_fill(~legal[:, last:], torch.inf).amin(1, keepdim=True)
        admit = (self.strength * (scores[:, :last] - best)).clamp(min=self.floor)
        preempt = (self.strength * (worst - scores[:, last:])).clamp(min=self.floor)
        slots = torch.cat([admit, preempt + self.preempt_bias], dim=1)
        proceed = torch.where(torch.isneginf(best), self.proceed_stop, self.proceed_go)
        levels = proceed.to(slots.dtype) + self._level_terms(slots)
        return torch.cat([levels, slots.masked_fill(~legal, 0.0)], dim=1)

    def _level_terms(self, like: Tensor) -> Tensor:
        """Return (1, num_levels): what a lower prefill level and holding all prefill cost."""
        terms = like.new_full((1, self.shape.num_levels), self.lower_level)
        terms[:, -1] = 0.0
        terms[:, 0] += self.hold_prefill
        return terms
