"""What each number of an observation means, in the order in which the core writes them.

An observation is a float32 vector: ``K + J`` slots of features (waiting ones first), then global
features, then, if asked for, privileged ones that only a value head may read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PREFILL_LEVELS = (0.0, 0.25, 0.5, 1.0)
"""Part of ``max_num_batched_tokens`` that prefill may take, by action."""

NUM_LEVELS = len(PREFILL_LEVELS)
FULL_LEVEL = NUM_LEVELS - 1


class Feature(NamedTuple):
    """One number of an observation."""

    name: str
    unit: str
    scale: str
    low: float = -1.0
    high: float = 1.0


MOVING_FEATURES = (
    Feature("present", "flag", "1 where the slot holds a request", 0.0),
    Feature("is_running", "flag", "1 in running slots", 0.0),
    Feature("is_legal", "flag", "1 where its action is legal now", 0.0),
    Feature("rank", "1", "position / slots", 0.0),
    Feature("density_gap", "log 1/s", "5 (density - best density shown)", -20.0, 0.0),
    Feature("short_slack", "s", "TTFT slack x / 0.5, within -1 and 1"),
    Feature("middle_slack", "s", "TTFT slack x / 2, within -1 and 1"),
    Feature("long_slack", "s", "TTFT slack x / 8, within -1 and 1"),
    Feature("blocks_of_free", "blocks", "x / (x + free + 1)", 0.0),
    Feature("wait", "s", "x / (x + 2)", 0.0),
    Feature("is_late", "flag", "1 where the TTFT deadline passed without a token", 0.0),
    Feature("tpot_slack", "s", "x / (|x| + 0.5), 0 before the first token"),
)
"""Slot features that change from decision to decision."""

RESTING_FEATURES = (
    Feature("prefill_left", "tokens", "x / (x + 512)", 0.0),
    Feature("decode_left", "tokens", "predicted x / (x + 128)", 0.0),
    Feature("weight", "1", "x / (x + 2)", 0.0),
    Feature("density", "log 1/s", "log(weight / work) / 5, as it began to wait", -10.0, 10.0),
    Feature("blocks_of_pool", "blocks", "x / num_blocks", 0.0, 2.0),
    Feature("preemptible", "flag", "1 where it may be preempted by choice", 0.0),
    Feature("computed", "tokens", "x / (x + 1024)", 0.0),
    Feature("outputs", "tokens", "x / (x + 64)", 0.0),
    Feature("preemptions", "1", "x / (x + 1)", 0.0),
    Feature("tpot_slo", "s", "x / (x + 0.1)", 0.0),
)
"""Slot features that rest while a request waits."""

SLOT_FEATURES = MOVING_FEATURES + RESTING_FEATURES

GLOBAL_FEATURES = (
    Feature("free_kv", "blocks", "x / num_blocks", 0.0),
    Feature("ledger_kv", "blocks", "x / num_blocks", -2.0),
    Feature("running", "requests", "x / max_num_seqs", 0.0),
    Feature("admitted", "requests", "x / (x + 4)", 0.0),
    Feature("ledger_tokens", "tokens", "x / max_num_batched_tokens", 0.0),
    Feature("decoding", "requests", "x / max_num_seqs", 0.0),
    Feature("prefill_tokens", "tokens", "x / max_num_batched_tokens", 0.0),
    Feature("waiting", "requests", "x / (x + 16)", 0.0),
    Feature("beyond_slots", "requests", "x / (x + 16)", 0.0),
    Feature("waiting_weight", "1", "x / (x + 16)", 0.0),
    Feature("waiting_prefill", "tokens", "x / (x + 8192)", 0.0),
    Feature("waiting_decode", "tokens", "x / (x + 8192)", 0.0),
    Feature("urgent_weight", "1", "x / (x + 4), shown, slack under 0.5 s", 0.0),
    Feature("late_weight", "1", "x / (x + 4), shown slack under 0", 0.0),
    Feature("fitting", "requests", "x / (x + 4)", 0.0),
    Feature("decodes_at_risk", "requests", "x / max_num_seqs", 0.0),
    Feature("decode_context", "tokens", "x / pool tokens", 0.0, 2.0),
    Feature("decode_step", "s", "x / (x + 0.05)", 0.0),
    Feature("full_step", "s", "x / (x + 0.05)", 0.0),
    Feature("arrival_rate", "requests/s", "x / (x + 5)", 0.0),
    Feature("shortage", "flag", "1 where a request must be preempted", 0.0),
    Feature("news", "flag", "1 after an arrival, end or first token", 0.0),
    Feature("longest_wait", "s", "x / (x + 5), of those shown", 0.0),
    Feature("running_decode", "tokens", "predicted x / (x + 8192)", 0.0),
)

PRIVILEGED_FEATURES = (
    Feature("next_arrival_1", "s", "time to it x, x / (x + 1)", 0.0),
    Feature("next_arrival_4", "s", "time to it x, x / (x + 2)", 0.0),
    Feature("next_arrival_16", "s", "time to it x, x / (x + 4)", 0.0),
    Feature("next_arrival_64", "s", "time to it x, x / (x + 16)", 0.0),
    Feature("next_tokens_16", "tokens", "x of 16 arrivals, x / (x + 16384)", 0.0),
    Feature("next_tokens_64", "tokens", "x of 64 arrivals, x / (x + 65536)", 0.0),
    Feature("true_running_decode", "tokens", "x / (x + 8192)", 0.0),
    Feature("true_shown_decode", "tokens", "x / (x + 8192)", 0.0),
)


def _fields(features: tuple[Feature, ...]) -> list[tuple[str, str]]:
    return [(feature.name, "f4") for feature in features]


# An observation is these records behind one another.
RESTING = np.dtype(_fields(RESTING_FEATURES))
SLOT = np.dtype([*_fields(MOVING_FEATURES), ("resting", RESTING)])
GLOBALS = np.dtype(_fields(GLOBAL_FEATURES))
FUTURE = np.dtype(_fields(PRIVILEGED_FEATURES))

NUM_SLOT_FEATURES = len(SLOT_FEATURES)
NUM_GLOBAL_FEATURES = len(GLOBAL_FEATURES)


@dataclass(frozen=True)
class Layout:
    """The shape of observations and actions for a number of slots.

    Attributes:
        num_waiting_slots: K, waiting requests shown.
        num_running_slots: J, running requests shown.
        privileged: Whether privileged features are appended.
    """

    num_waiting_slots: int
    num_running_slots: int
    privileged: bool = False

    @property
    def num_slots(self) -> int:
        """Return K + J."""
        return self.num_waiting_slots + self.num_running_slots

    @property
    def num_levels(self) -> int:
        """Return L, the number of prefill levels."""
        return NUM_LEVELS

    @property
    def prefill_levels(self) -> tuple[float, ...]:
        """Return the part of the token budget that prefill may take, by level."""
        return PREFILL_LEVELS

    @property
    def num_actions(self) -> int:
        """Return L + K + J."""
        return NUM_LEVELS + self.num_slots

    @property
    def slot_features(self) -> tuple[Feature, ...]:
        """Return the features of a slot, in order."""
        return SLOT_FEATURES

    @property
    def global_features(self) -> tuple[Feature, ...]:
        """Return the global features, in order."""
        return GLOBAL_FEATURES

    @property
    def privileged_features(self) -> tuple[Feature, ...]:
        """Return the privileged features, none unless they are part of the observation."""
        return PRIVILEGED_FEATURES if self.privileged else ()

    @property
    def public_size(self) -> int:
        """Return the length of an observation without privileged features."""
        return self.num_slots * NUM_SLOT_FEATURES + NUM_GLOBAL_FEATURES

    @property
    def size(self) -> int:
        """Return the length of an observation."""
        return self.public_size + len(self.privileged_features)

    def split(
        self, observation: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Split observations float32 (..., size) into views.

        Returns:
            Slots (..., K + J, F), globals (..., G) and privileged features (..., P).
        """
        edge = self.num_slots * NUM_SLOT_FEATURES
        lead = observation.shape[:-1]
        slots = observation[..., :edge].reshape(*lead, self.num_slots, NUM_SLOT_FEATURES)
        public = self.public_size
        return slots, observation[..., edge:public], observation[..., public:]

    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the lowest and highest value of each number, float32 (size,)."""
        slots = list(SLOT_FEATURES) * self.num_slots
        features = [*slots, *GLOBAL_FEATURES, *self.privileged_features]
        low = np.array([feature.low for feature in features], np.float32)
        high = np.array([feature.high for feature in features], np.float32)
        return low, high

    def describe(self) -> dict[str, object]:
        """Return the layout as plain data: what a policy has to agree on."""
        return {
            "num_waiting_slots": self.num_waiting_slots,
            "num_running_slots": self.num_running_slots,
            "prefill_levels": list(PREFILL_LEVELS),
            "slot_features": [[f.name, f.unit, f.scale] for f in SLOT_FEATURES],
            "global_features": [[f.name, f.unit, f.scale] for f in GLOBAL_FEATURES],
        }

    def schema_hash(self) -> str:
        """Return the SHA-256 of :meth:`describe`; privileged features do not count."""
        text = json.dumps(self.describe(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
