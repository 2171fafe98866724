"""Linear scores written down by hand: weights by the names of the features they weigh.

::

    score = linear_score("heaviest", admit={"weight": 1.0}, preempt={"weight": -1.0})

It becomes an `ExportedPolicy` like any trained one: the same observation, the same actions, the
same compiled runtime and, once written with `write_policy`, the same folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sched_env.config.env import Screen
from sched_env.engine.layout import Layout
from sched_env.errors import UnknownNameError
from sched_env.policy.card import (
    LayoutLike,
    LinearScoreArchitecture,
    ObservationSchema,
    PolicyCard,
    Scalar,
)
from sched_env.policy.runtime import ExportedPolicy

NEVER = -1000.0
"""A bias that leaves an action to decisions without another choice."""

STANDARD_LAYOUT = Layout(num_waiting_slots=24, num_running_slots=8)


def linear_score(
    name: str,
    *,
    admit: Mapping[str, float],
    preempt: Mapping[str, float],
    preempt_bias: float = NEVER,
    stop: Mapping[str, float] | None = None,
    stop_bias: float = NEVER,
    level: Mapping[str, float] | None = None,
    level_bias: float = 1.0,
    level_scale: float = 10.0,
    watermark: float = 0.0,
    layout: LayoutLike = STANDARD_LAYOUT,
    screen: Screen = "weighted_sjf",
    training: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
) -> ExportedPolicy:
    """Return a policy that admits the best score, stops by another, and sets the prefill level.

    Args:
        name: Name in results.
        admit: Weight of slot features in the score of admitting a waiting request.
        preempt: Weight of slot features in the score of preempting a running one.
        preempt_bias: Added to the latter.
        stop: Weight of global features in the score of proceeding, which is to beat admissions.
        stop_bias: Added to the latter.
        level: Weight of global features in the wanted prefill level, in parts of the token budget;
            the nearest legal level is taken.
        level_bias: The wanted level where all of those are 0.
        level_scale: How much the nearest level's score exceeds that of the others.
        watermark: Part of the KV pool that admissions leave free.
        layout: Slots, levels and features of the environment.
        screen: Which waiting requests it is shown first.
        training: What the card says about where the numbers come from.

    Raises:
        UnknownNameError: A feature that is not observed.
        PolicyError: A name, screen or training that no card may hold.
    """
    schema = ObservationSchema.from_layout(layout)
    card = PolicyCard(
        name=name,
        observation=schema,
        screen=screen,
        architecture=LinearScoreArchitecture(),
        training=dict(training or {}),
    )
    slots = [feature.name for feature in schema.slot_features]
    globals_ = [feature.name for feature in schema.global_features]
    levels = np.array(schema.prefill_levels)
    wanted = _weights("global feature", level or {}, globals_)
    stopping = _weights("global feature", stop or {}, globals_)
    # -(level - wanted)^2 up to what all levels share, so that the nearest level scores highest.
    proceed = stopping[:, None] + level_scale * 2.0 * np.outer(wanted, levels - levels[-1])
    nearness = -((levels - level_bias) ** 2) + (levels[-1] - level_bias) ** 2
    tensors: dict[str, Any] = {
        "admit.weight": _weights("slot feature", admit, slots),
        "admit.bias": [0.0],
        "preempt.weight": _weights("slot feature", preempt, slots),
        "preempt.bias": [preempt_bias],
        "proceed.weight": proceed,
        "proceed.bias": stop_bias + level_scale * nearness,
        "watermark": [watermark],
    }
    return ExportedPolicy(
        card, {key: np.asarray(value, np.float32) for key, value in tensors.items()}
    )


def _weights(kind: str, given: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    weights = np.zeros(len(names))
    for name, value in given.items():
        if name not in names:
            raise UnknownNameError(kind, name, names)
        weights[names.index(name)] = value
    return weights
