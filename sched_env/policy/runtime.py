"""Running an exported policy: compiled, without torch.

::

    policy = load_policy("runs/…/policy")
    policy.check_layout(env.unwrapped.layout)
    actions = policy.act(observations, masks)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from sched_env.errors import PolicyError
from sched_env.policy.card import LayoutLike, ObservationSchema, PolicyCard
from sched_env.policy.decisions import FLAT, LINEAR_SCORE, POINTER, Network, decide
from sched_env.policy.format import read_policy
from sched_env.policy.prior import SCORE_PREFIX, PriorParameters
from sched_env.policy.protocol import ParameterValue

SEARCH_BUDGET = "search_requests"
"""What a card's training calls the requests that were simulated to find a score."""


@dataclass(frozen=True, eq=False)
class ExportedPolicy:
    """A network or a score that decides: the best legal action, the lowest index on ties.

    Attributes:
        card: What the policy says about itself.
        weights: The tensors, float32, by name.
        weights_sha256: Hash of the weights file; empty if it was made in memory.
        folder: Where it was read from, or ``None``.
    """

    card: PolicyCard
    weights: Mapping[str, np.ndarray]
    weights_sha256: str = ""
    folder: Path | None = None

    @property
    def kind(self) -> Literal["heuristic", "tuned", "network"]:
        """Return "network"; for a linear score "tuned" if a search made it, else "heuristic"."""
        if self.card.architecture.kind != "linear_score":
            return "network"
        return "tuned" if SEARCH_BUDGET in self.card.training else "heuristic"

    @property
    def name(self) -> str:
        """Return the name that results are reported under."""
        return self.card.name

    @property
    def reference(self) -> str:
        """Return the training run, as far as it was recorded."""
        return str(self.card.training.get("run", ""))

    @property
    def parameters(self) -> Mapping[str, ParameterValue]:
        """Return the single values recorded of the training run."""
        values = self.card.training.items()
        return {key: value for key, value in values if not isinstance(value, tuple)}

    @property
    def privileged(self) -> bool:
        """Return False: privileged columns are dropped when a policy is exported."""
        return False

    @cached_property
    def observation_size(self) -> int:
        """The number of columns of an observation, without privileged ones."""
        return self.card.observation.observation_size

    @cached_property
    def num_actions(self) -> int:
        """The number of actions."""
        return self.card.observation.num_actions

    def act(self, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Choose one action for each row.

        Args:
            observations: float32 (N, observation_size).
            masks: int8 or bool (N, num_actions), 1 = legal; at least one in each row.

        Returns:
            int64 (N,).

        Raises:
            PolicyError: If a shape or dtype is another, or a row has no legal action.
        """
        return self._decide(observations, masks)[1]

    def logits(self, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Return the logits behind `act`, -1e8 where an action is illegal.

        Args:
            observations: float32 (N, observation_size).
            masks: int8 or bool (N, num_actions), 1 = legal; at least one in each row.

        Returns:
            float32 (N, num_actions).

        Raises:
            PolicyError: If a shape or dtype is another, or a row has no legal action.
        """
        return self._decide(observations, masks)[0]

    def check_layout(self, layout: LayoutLike) -> None:
        """Refuse an environment whose observation or actions differ from those of training.

        Args:
            layout: ``env.unwrapped.layout``.

        Raises:
            PolicyError: If they differ; the message names the first size or feature that does.
        """
        there = ObservationSchema.from_layout(layout)
        if there.sha256() == self.card.observation.sha256():
            return
        difference = self.card.observation.difference(there)
        raise PolicyError(
            f"policy {self.name!r} does not fit this environment: {difference} (here: the policy, "
            "there: the environment); run it with the observation it was trained with"
        )

    def _decide(self, observations: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, legal = np.ascontiguousarray(observations), np.ascontiguousarray(masks)
        num_rows = rows.shape[0]
        if rows.shape != (num_rows, self.observation_size) or rows.dtype != np.float32:
            _refuse("observations", rows, f"float32 {(num_rows, self.observation_size)}")
        if legal.shape != (num_rows, self.num_actions) or legal.dtype.char not in "b?":
            _refuse("masks", legal, f"int8 or bool {(num_rows, self.num_actions)}")
        logits = np.empty((num_rows, self.num_actions), np.float32)
        actions = np.empty(num_rows, np.int64)
        decide(self.network, rows, legal.view(np.int8), logits, actions)
        if num_rows and actions.min() < 0:
            raise PolicyError(
                f"masks: row {int(actions.argmin())} has no legal action; at least one is needed"
            )
        return logits, actions

    @cached_property
    def network(self) -> Network:
        """The network as compiled code takes it."""
        card, prior = self.card, self.prior_parameters()
        schema, architecture = card.observation, card.architecture
        sizes = [
            schema.num_waiting_slots,
            schema.num_running_slots,
            len(schema.slot_features),
            len(schema.global_features),
            schema.num_levels,
            prior.score_feature,
        ]
        if architecture.kind == "pointer":
            sizes += [POINTER, architecture.hidden_size]
        elif architecture.kind == "linear_score":
            sizes += [LINEAR_SCORE, *card.watermark_features(architecture)]
        else:
            sizes += [FLAT, int(architecture.activation == "tanh"), *card.mlp_sizes()]
        features = (0, 0)
        if card.prior.kind == "linear_score":
            features = card.watermark_features(card.prior)
        parts: dict[str, list[np.ndarray]] = {"": [], "normalisation.": [], SCORE_PREFIX: []}
        for name in card.tensor_shapes():
            prefix = next((one for one in parts if one and name.startswith(one)), "")
            parts[prefix].append(self.weights[name].ravel())
        flat, norm, score = (
            np.concatenate([np.empty(0, np.float32), *part]) for part in parts.values()
        )
        clip = card.normalisation.clip if card.normalisation.kind == "standard" else 0.0
        return Network(
            flat=flat,
            sizes=np.array(sizes, np.int64),
            numbers=np.array([clip, *prior[1:]], np.float32),
            norm=norm,
            score=score,
            score_sizes=np.array(features, np.int64),
        )

    def prior_parameters(self) -> PriorParameters:
        """Return the numbers of the soft prior; ``score_feature`` is -1 where it reads none."""
        prior = self.card.prior
        if prior.kind == "none":
            return PriorParameters(-1, *[np.float32(0)] * 6)
        if prior.kind == "linear_score":
            soft = np.float32(prior.strength), np.float32(prior.floor)
            return PriorParameters(-1, *soft, *[np.float32(0)] * 4)
        names = [feature.name for feature in self.card.observation.slot_features]
        values: dict[str, Any] = prior.model_dump(exclude={"kind", "score_feature"})
        numbers = {key: np.float32(value) for key, value in values.items()}
        return PriorParameters(score_feature=names.index(prior.score_feature), **numbers)


def load_policy(folder: str | Path) -> ExportedPolicy:
    """Read a policy folder and check everything in it.

    Args:
        folder: Holds ``config.json`` and ``policy.safetensors``.

    Raises:
        PolicyError: If something is missing, damaged or not allowed.
    """
    stored = read_policy(folder)
    return ExportedPolicy(stored.card, stored.weights, stored.weights_sha256, Path(folder))


def _refuse(name: str, given: np.ndarray, wanted: str) -> NoReturn:
    raise PolicyError(f"{name} are {given.dtype} {given.shape}; give {wanted}")
