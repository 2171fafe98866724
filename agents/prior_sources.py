"""Where the numbers of a soft prior come from: a configuration, or an exported policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from sched_env.agents.prior import Prior, ScoreParameters
from sched_env.config import ExperimentConfig
from sched_env.config.agent import PriorConfig
from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.evaluation.fingerprints import weights_sha256
from sched_env.policy.card import (
    LAST_LAYER,
    LinearScoreArchitecture,
    LinearScorePrior,
    NoPrior,
    WeightedSjfPrior,
)
from sched_env.policy.prior import SCORE_PREFIX, PriorParameters
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import SEARCH_BUDGET, ExportedPolicy

SCORE_FEATURE = "density"
"""Slot feature that the weighted_sjf prior reads."""


def prior_score(name: str | Path) -> ExportedPolicy:
    """Return the linear score that is to be a prior.

    Raises:
        SchedEnvError: There is no such policy.
        PolicyError: It is no linear score.
    """
    policy = resolve_policy(name)
    if not isinstance(policy, ExportedPolicy) or policy.card.architecture.kind != "linear_score":
        raise PolicyError(
            f"prior {name} is no linear score: give a folder that sched-env tune wrote"
        )
    return policy


def prior_hashes(experiment: ExperimentConfig) -> dict[str, str]:
    """Return the hash of the weights of each linear score that a run reads, by dotted key.

    Raises:
        SchedEnvError: There is no such policy.
        PolicyError: It is no linear score.
    """
    named = {
        "agent.prior.policy": experiment.agent.prior.policy,
        "cloning.prior": experiment.cloning.prior,
    }
    return {
        key: weights_sha256(prior_score(name)) for key, name in named.items() if name is not None
    }


def around_score(policy: ExportedPolicy, score: ExportedPolicy) -> ExportedPolicy:
    """Return a pointer network around another linear score, which decides as that score does.

    Its hidden layers are those of ``policy``; its last layer has no say so far.

    Args:
        policy: A pointer network around a linear score.
        score: What takes the place of that one.

    Raises:
        PolicyError: The network is another one, or the score reads other features.
    """
    if policy.card.architecture.kind != "pointer" or policy.card.prior.kind != "linear_score":
        raise PolicyError(f"{policy.name!r} is no pointer network around a linear score")
    if score.card.observation.slot_features != policy.card.observation.slot_features:
        raise PolicyError(f"{score.name!r} reads other features than {policy.name!r}")
    weights = {
        name: np.zeros_like(tensor) if name in LAST_LAYER else tensor
        for name, tensor in policy.weights.items()
    }
    weights |= {SCORE_PREFIX + name: tensor for name, tensor in score.weights.items()}
    training = {
        **policy.card.training,
        "prior": score.name,
        "prior_search_requests": score.card.training.get(SEARCH_BUDGET),
    }
    return ExportedPolicy(policy.card.model_copy(update={"training": training}), weights)


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
        policy = prior_score(str(prior.policy))
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
    score = _score_of(prior_score(str(prior.policy)))
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
