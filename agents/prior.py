"""The soft prior in torch: a heuristic written as logits, added to those of the network.

The formulas stand in `sched_env.policy.prior`, whose numbers (`PriorParameters`) are used here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sched_env.agents.networks import ObservationShape
from sched_env.policy.prior import PriorParameters


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
