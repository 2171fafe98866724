"""The vector that the search changes, and the linear score that it stands for.

Every feature that the agent observes gets a weight: those of a slot in the score of its admission
and in that of its preemption, those of the server in the score of stopping to admit and in the
wanted prefill level. The zero vector is weighted shortest job first at the full level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config.env import Screen
from sched_env.engine.layout import Layout
from sched_env.policy.runtime import ExportedPolicy
from sched_env.policy.scores import linear_score

_CONSTANT = ("present", "is_running", "is_legal")
"""Features that are the same for all slots that may be chosen."""

_DENSITY = 5.0
_STOP_BIAS = -10.0
_PREEMPT_BIAS = -10.0
_LEVEL_SCALE = 10.0
_SLOT_SCALE = 2.0
_STOP_SCALE = 4.0
_LEVEL_WEIGHT_SCALE = 1.0
_WATERMARK_SCALE = 0.05


@dataclass(frozen=True)
class ScoreSpace:
    """What the search may change for one layout of observations.

    Attributes:
        layout: Slots, levels and features of the environment.
        screen: Which waiting requests it shows first.
    """

    layout: Layout
    screen: Screen = "weighted_sjf"

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Return the slot features that get a weight."""
        names = (feature.name for feature in self.layout.slot_features)
        return tuple(name for name in names if name not in _CONSTANT)

    @property
    def global_names(self) -> tuple[str, ...]:
        """Return the features of the server that get a weight."""
        return tuple(feature.name for feature in self.layout.global_features)

    @property
    def size(self) -> int:
        """Return how many numbers the search changes."""
        return 2 * len(self.slot_names) + 2 * len(self.global_names) + 4

    def policy(
        self, vector: NDArray[np.float64], name: str = "candidate", training: Any = None
    ) -> ExportedPolicy:
        """Return the score that a vector stands for.

        Args:
            vector: float64 (size,), about 1 in each direction.
            name: Name in results.
            training: What its card says about where the numbers come from.
        """
        slots, globals_ = len(self.slot_names), len(self.global_names)
        edges = np.cumsum([slots, slots, globals_, globals_])
        admit, preempt, stop, level, rest = np.split(np.asarray(vector, np.float64), edges)
        preempt_bias, stop_bias, level_bias, watermark = rest
        return linear_score(
            name,
            admit=_named(self.slot_names, _SLOT_SCALE * admit, {"density": _DENSITY}),
            preempt=_named(self.slot_names, _SLOT_SCALE * preempt, {"density": -_DENSITY}),
            preempt_bias=_PREEMPT_BIAS + _STOP_SCALE * preempt_bias,
            stop=_named(self.global_names, _STOP_SCALE * stop, {}),
            stop_bias=_STOP_BIAS + _STOP_SCALE * stop_bias,
            level=_named(self.global_names, _LEVEL_WEIGHT_SCALE * level, {}),
            level_bias=1.0 + _LEVEL_WEIGHT_SCALE * level_bias,
            level_scale=_LEVEL_SCALE,
            watermark=max(_WATERMARK_SCALE * watermark, 0.0),
            layout=self.layout,
            screen=self.screen,
            training=training,
        )


def _named(
    names: tuple[str, ...], changes: NDArray[np.float64], start: Mapping[str, float]
) -> dict[str, float]:
    return {
        name: start.get(name, 0.0) + float(change)
        for name, change in zip(names, changes, strict=True)
    }
