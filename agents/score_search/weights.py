"""The vector that a polish changes: the last layer of a network and the score that is its prior.

The rest of the network stays as it was trained. What is searched are the tensors that stand next to
the logits, so that a few hundred numbers reach every decision; the zero vector is the policy as it
came.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.errors import PolicyError
from sched_env.policy.card import LAST_LAYER
from sched_env.policy.prior import SCORE_PREFIX
from sched_env.policy.runtime import ExportedPolicy

_SCORE_SCALES = {
    "admit.weight": 2.0,
    "preempt.weight": 2.0,
    "preempt.bias": 4.0,
    "proceed.weight": 4.0,
    "proceed.bias": 4.0,
    "watermark": 0.05,
}
"""What one unit of the search changes a tensor of a linear score by."""


@dataclass(frozen=True)
class WeightSpace:
    """What the search may change of a policy.

    Attributes:
        start: The policy to start from.
    """

    start: ExportedPolicy

    @cached_property
    def scales(self) -> dict[str, float]:
        """The tensors that are searched, each with the size of one unit of the search.

        Raises:
            PolicyError: The policy is a flat network, of which the rest would stay as it was.
        """
        if self.start.card.architecture.kind == "mlp":
            raise PolicyError(
                f"policy {self.start.name!r} is a flat network: give a linear score or a pointer "
                "network, of which the last layer and the prior can be searched"
            )
        is_score = self.start.card.architecture.kind == "linear_score"
        mark = "" if is_score else SCORE_PREFIX
        scales = {mark + name: scale for name, scale in _SCORE_SCALES.items()}
        if not is_score:
            # A unit of the network weighs as much as a unit of the score that it is added to.
            prior = self.start.card.prior
            head_scale = 1.0 if prior.kind == "none" else prior.strength
            heads = [name for name in self.start.weights if name in LAST_LAYER]
            scales |= dict.fromkeys(heads, head_scale)
        return {name: scales[name] for name in self.start.weights if name in scales}

    @property
    def size(self) -> int:
        """Return how many numbers the search changes."""
        return sum(self.start.weights[name].size for name in self.scales)

    def policy(
        self, vector: NDArray[np.float64], name: str = "candidate", training: Any = None
    ) -> ExportedPolicy:
        """Return the policy that a vector stands for.

        Args:
            vector: float64 (size,), about 1 in each direction.
            name: Name in results.
            training: What its card says about where the numbers come from.
        """
        weights, first = dict(self.start.weights), 0
        for tensor, scale in self.scales.items():
            old = self.start.weights[tensor]
            change = scale * np.asarray(vector[first : first + old.size], np.float64)
            first += old.size
            new = (old.astype(np.float64) + change.reshape(old.shape)).astype(np.float32)
            weights[tensor] = np.maximum(new, 0.0) if tensor.endswith("watermark") else new
        card = self.start.card.model_copy(update={"name": name, "training": dict(training or {})})
        return ExportedPolicy(card, weights)
