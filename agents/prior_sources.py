"""Where the numbers of a soft prior come from: a configuration, or an exported policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sched_env.agents.prior import Prior, ScoreParameters
from sched_env.config.agent import PriorConfig
from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.policy.card import (
    LinearScoreArchitecture,
    LinearScorePrior,
    NoPrior,
    WeightedSjfPrior,
)
from sched_env.policy.prior import SCORE_PREFIX, PriorParameters
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy

SCORE_FEATURE = "density"
"""Slot feature that the weighted_sjf prior reads."""


def prior_score(prior: PriorConfig) -> ExportedPolicy:
    """Return the linear score that is the prior.

    Raises:
        SchedEnvError: There is no such policy.
        PolicyError: It is no linear score.
    """
    policy = resolve_policy(str(prior.policy))
    if not isinstance(policy, ExportedPolicy) or policy.card.architecture.kind != "linear_score":
        raise PolicyError(
            f"prior {prior.policy} is no linear score: give a folder that sched-env tune wrote"
        )
    return policy


def _slots_of(policy: ExportedPolicy) -> dict[str, int]:
    schema = policy.card.observation
    return {
        "num_waiting_slots": schema.num_waiting_slots,
        "num_running_slots": schema.num_running_slots,
    }


def _score_of(policy: ExportedPolicy) -> LinearScoreArchitecture:
    architecture = policy.card.architecture
    assert architecture.kind == "linear_score"
    return architecture


def prior_parameters(prior: PriorConfig, layout: Layout) -> Prior | None:
    """Return the numbers of the soft prior, or None where there is none.

    Raises:
        PolicyError: The linear score reads other features than the layout has, or is none.
    """
    if prior.kind == "none":
        return None
    if prior.kind == "linear_score":
        policy = prior_score(prior)
        # A score reads one slot at a time: it is the same for any number of slots.
        policy.check_layout(replace(layout, **_slots_of(policy)))
        features = policy.card.watermark_features(_score_of(policy))
        return ScoreParameters(prior.strength, prior.floor, *features, policy.weights)
    names = [feature.name for feature in layout.slot_features]
    numbers = prior.model_dump(exclude={"kind", "policy"})
    return PriorParameters(
        score_feature=names.index(SCORE_FEATURE),
        **{name: np.float32(value) for name, value in numbers.items()},
    )


def card_prior(prior: PriorConfig) -> NoPrior | WeightedSjfPrior | LinearScorePrior:
    """Return what a policy's card says of its prior."""
    if prior.kind == "none":
        return NoPrior()
    if prior.kind == "weighted_sjf":
        numbers = prior.model_dump(exclude={"kind", "policy"})
        return WeightedSjfPrior(score_feature=SCORE_FEATURE, **numbers)
    score = _score_of(prior_score(prior))
    return LinearScorePrior(
        strength=prior.strength,
        floor=prior.floor,
        size_feature=score.size_feature,
        free_feature=score.free_feature,
    )


def exported_prior(policy: ExportedPolicy) -> Prior | None:
    """Return the numbers of an exported policy's prior."""
    prior = policy.card.prior
    if prior.kind == "none":
        return None
    if prior.kind == "weighted_sjf":
        return policy.prior_parameters()
    weights = {
        name.removeprefix(SCORE_PREFIX): tensor
        for name, tensor in policy.weights.items()
        if name.startswith(SCORE_PREFIX)
    }
    features = policy.card.watermark_features(prior)
    return ScoreParameters(prior.strength, prior.floor, *features, weights)
