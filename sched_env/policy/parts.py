"""A policy put together from the decisions of several.

One policy, the base, decides what kind of action comes next: to proceed, to admit, or to preempt.
Which prefill level, whom to admit and whom to preempt can each be left to another one. So what a
learned policy gains by its victims, or by its prefill levels, can be told apart from what it gains
by its order of admission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sched_env.errors import PolicyError
from sched_env.policy.card import LayoutLike, ObservationSchema, PolicyCard
from sched_env.policy.protocol import ParameterValue
from sched_env.policy.runtime import ExportedPolicy

Part = Literal["level", "admission", "victims"]
PARTS: tuple[Part, ...] = ("level", "admission", "victims")
"""Kinds of decisions, in the order of the actions."""


class Scores(Protocol):
    """Whatever prefers one action of a kind to another."""

    def logits(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.float32]:
        """Return logits (N, num_actions); the largest legal one of a kind wins."""
        ...


@dataclass(frozen=True, eq=False)
class MostBlocksVictim:
    """Prefers the victim that frees most blocks for each token to compute again.

    Attributes:
        observation: What it is shown.
    """

    observation: ObservationSchema

    def logits(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.float32]:
        """Return logits (N, num_actions): blocks over tokens of running slots, 0 for the others."""
        seen, (num_rows, num_actions) = self.observation, masks.shape
        names = [feature.name for feature in seen.slot_features]
        edge = seen.num_slots * len(names)
        slots = observations[:, :edge].reshape(num_rows, seen.num_slots, len(names))
        running = slots[:, seen.num_waiting_slots :]
        share = running[:, :, names.index("computed")]
        tokens = share / np.maximum(1.0 - share, 1e-6)
        logits = np.zeros((num_rows, num_actions), np.float32)
        blocks = running[:, :, names.index("blocks_of_pool")]
        logits[:, num_actions - seen.num_running_slots :] = blocks / np.maximum(tokens, 1e-6)
        return logits


@dataclass(frozen=True, eq=False)
class PartsPolicy:
    """A base, with some of its decisions left to others.

    Attributes:
        name: Name in results.
        base: Decides which kind of action comes next, and what is left to nobody else.
        parts: Who decides instead, by kind of decision.
    """

    name: str
    base: ExportedPolicy
    parts: Mapping[Part, Scores]
    kind: Literal["network"] = field(default="network", init=False)

    def __post_init__(self) -> None:
        """Refuse what is not shown the same as the base.

        Raises:
            PolicyError: A part is another kind of decision, or was made for other observations.
        """
        for part, scores in self.parts.items():
            if part not in PARTS:
                raise PolicyError(f"{part!r} is no part of a policy: use {', '.join(PARTS)}")
            if not isinstance(scores, ExportedPolicy):
                continue
            difference = self.card.observation.difference(scores.card.observation)
            if difference is not None:
                raise PolicyError(
                    f"{scores.name!r} cannot decide for {self.base.name!r}: {difference} (here: "
                    f"{self.base.name!r}, there: {scores.name!r}); take policies of one layout"
                )

    @property
    def card(self) -> PolicyCard:
        """Return the card of the base, which says what is observed."""
        return self.base.card

    @property
    def num_actions(self) -> int:
        """Return the number of actions."""
        return self.base.num_actions

    @property
    def reference(self) -> str:
        """Return where the base comes from."""
        return self.base.reference

    @property
    def parameters(self) -> Mapping[str, ParameterValue]:
        """Return nothing: the parts have their own."""
        return {}

    @property
    def privileged(self) -> bool:
        """Return False: exported policies see what a server knows."""
        return False

    def check_layout(self, layout: LayoutLike) -> None:
        """Refuse an environment with another observation; see `ExportedPolicy.check_layout`."""
        self.base.check_layout(layout)

    def act(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int64]:
        """Choose one action for each row; see `ExportedPolicy.act`."""
        actions = self.base.act(observations, masks)
        seen = self.card.observation
        ends = np.cumsum([seen.num_levels, seen.num_waiting_slots, seen.num_running_slots])
        kinds = np.searchsorted(ends, actions, side="right")
        for kind, part in enumerate(PARTS):
            rows = np.flatnonzero(kinds == kind)
            if part not in self.parts or rows.size == 0:
                continue
            end, first = int(ends[kind]), int(ends[kind - 1]) if kind else 0
            logits = self.parts[part].logits(observations[rows], masks[rows])[:, first:end]
            legal = np.asarray(masks[rows, first:end]) != 0
            actions[rows] = first + np.where(legal, logits, -np.inf).argmax(axis=1)
        return actions
