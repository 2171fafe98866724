"""What each number of an observation of the teaching machine means.

An observation is a float32 vector: ``num_slots`` slots of features, then global features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sched_env.engine.layout import Feature

DECODE_SLOT_FEATURES = (
    Feature("present", "flag", "1 where the slot holds a request", 0.0),
    Feature("can_step", "flag", "1 where it may get the step", 0.0),
    Feature("can_preempt", "flag", "1 where it may be preempted", 0.0),
    Feature("admitted", "flag", "1 where it holds its blocks", 0.0),
    Feature("is_decode", "flag", "1 after its prefill", 0.0),
    Feature("cache_hit", "flag", "1 where its prefix is cached", 0.0),
    Feature("preemptible", "flag", "1 where it may be preempted at all", 0.0),
    Feature("priority", "1", "x / (|x| + 2)"),
    Feature("remaining", "steps", "x / (x + 8)", 0.0),
    Feature("prompt_len", "tokens", "x / (x + 16)", 0.0),
    Feature("generated", "tokens", "x / (x + 8)", 0.0),
    Feature("required_blocks", "blocks", "x / all blocks", 0.0),
    Feature("wait", "steps", "x / (x + 8)", 0.0),
    Feature("has_deadline", "flag", "1 where it has one", 0.0),
    Feature("slack", "steps", "x / (|x| + 4), 1 without a deadline"),
    Feature("missed", "flag", "1 where its deadline cannot be met any more", 0.0),
    Feature("preemptions", "1", "x / (x + 1)", 0.0),
    Feature("weight", "1", "share of the weight shown", 0.0),
)

(
    PRESENT,
    CAN_STEP,
    CAN_PREEMPT,
    ADMITTED,
    IS_DECODE,
    CACHE_HIT,
    PREEMPTIBLE,
    PRIORITY,
    REMAINING,
    PROMPT_LEN,
    GENERATED,
    REQUIRED_BLOCKS,
    WAIT,
    HAS_DEADLINE,
    SLACK,
    MISSED,
    PREEMPTIONS,
    WEIGHT,
) = range(len(DECODE_SLOT_FEATURES))

DECODE_GLOBAL_FEATURES = (
    Feature("free_kv", "blocks", "x / all blocks", 0.0),
    Feature("clock", "steps", "x / (x + 32)", 0.0),
    Feature("live", "requests", "x / (x + 4), arrived and not done", 0.0),
    Feature("beyond_slots", "requests", "x / (x + 4)", 0.0),
    Feature("has_preempted", "flag", "1 between a preemption and the next step", 0.0),
)

(
    FREE_KV,
    CLOCK,
    LIVE,
    BEYOND_SLOTS,
    HAS_PREEMPTED,
) = range(len(DECODE_GLOBAL_FEATURES))


@dataclass(frozen=True)
class DecodeLayout:
    """The shape of observations and actions for a number of slots.

    Attributes:
        num_slots: S, requests shown.
    """

    num_slots: int

    @property
    def num_actions(self) -> int:
        """Return 2 S: give slot i the step, or preempt it."""
        return 2 * self.num_slots

    @property
    def slot_features(self) -> tuple[Feature, ...]:
        """Return the features of a slot, in order."""
        return DECODE_SLOT_FEATURES

    @property
    def global_features(self) -> tuple[Feature, ...]:
        """Return the global features, in order."""
        return DECODE_GLOBAL_FEATURES

    @property
    def size(self) -> int:
        """Return the length of an observation."""
        return self.num_slots * len(DECODE_SLOT_FEATURES) + len(DECODE_GLOBAL_FEATURES)

    def split(
        self, observation: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Split observations float32 (..., size) into views.

        Returns:
            Slots (..., S, F), globals (..., G) and no privileged features (..., 0).
        """
        edge = self.num_slots * len(DECODE_SLOT_FEATURES)
        shape = (*observation.shape[:-1], self.num_slots, len(DECODE_SLOT_FEATURES))
        end = observation.shape[-1]
        return (
            observation[..., :edge].reshape(shape),
            observation[..., edge:],
            observation[..., end:],
        )

    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the lowest and highest value of each number, float32 (size,)."""
        features = [*DECODE_SLOT_FEATURES * self.num_slots, *DECODE_GLOBAL_FEATURES]
        low = np.array([feature.low for feature in features], np.float32)
        high = np.array([feature.high for feature in features], np.float32)
        return low, high

    def action_name(self, action: int) -> str:
        """Return an action in words."""
        if not 0 <= action < self.num_actions:
            return "outside the action space"
        verb = "step" if action < self.num_slots else "preempt"
        return f"{verb} slot {action % self.num_slots}"
