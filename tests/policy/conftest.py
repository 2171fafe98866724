"""Small exported policies, made in memory."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.policy import names
from sched_env.policy.card import (
    FeatureCard,
    LinearScoreArchitecture,
    LinearScorePrior,
    MlpArchitecture,
    NoNormalisation,
    NoPrior,
    ObservationSchema,
    PointerArchitecture,
    PolicyCard,
    StandardNormalisation,
    WeightedSjfPrior,
)
from sched_env.policy.runtime import ExportedPolicy

ARCHITECTURES = {
    "pointer": PointerArchitecture(hidden_size=8),
    "mlp_tanh": MlpArchitecture(hidden_sizes=(7, 5), activation="tanh"),
    "mlp_relu": MlpArchitecture(hidden_sizes=(9,), activation="relu"),
    "linear": MlpArchitecture(hidden_sizes=()),
    "score": LinearScoreArchitecture(size_feature="blocks", free_feature="free_kv"),
}


PRIORS = {
    False: NoPrior(),
    True: WeightedSjfPrior(hold_prefill=-1.0),
    "score": LinearScorePrior(
        strength=0.8, floor=-1.5, size_feature="blocks", free_feature="free_kv"
    ),
}


@pytest.fixture
def own_registry(monkeypatch):
    """Give the test a registry of its own."""
    monkeypatch.setattr(names, "_registered", {})


@pytest.fixture
def make_card():
    def make(architecture="pointer", *, prior=False, standard=False, waiting=5, running=3, **more):
        def features(*names):
            return tuple(FeatureCard(name=name, unit="1", scale="x / 2") for name in names)

        return PolicyCard(
            name="sample",
            observation=ObservationSchema(
                num_waiting_slots=waiting,
                num_running_slots=running,
                prefill_levels=(0.0, 0.5, 1.0),
                slot_features=features("present", "density", "wait", "blocks"),
                global_features=features("free_kv", "running"),
            ),
            architecture=ARCHITECTURES[architecture],
            prior=PRIORS[prior],
            normalisation=StandardNormalisation(clip=1.5) if standard else NoNormalisation(),
            **more,
        )

    return make


@pytest.fixture
def make_weights():
    def make(card, seed=0, scale=0.5):
        rng = np.random.default_rng(seed)
        weights = {
            name: rng.normal(0.0, scale, shape).astype(np.float32)
            for name, shape in card.tensor_shapes().items()
        }
        for name, tensor in weights.items():
            if name.endswith("inverse_std"):
                tensor[:] = np.abs(tensor) + np.float32(0.5)
        return weights

    return make


@pytest.fixture
def make_policy(make_card, make_weights):
    def make(architecture="pointer", *, seed=0, scale=0.5, **card):
        made = make_card(architecture, **card)
        return ExportedPolicy(made, make_weights(made, seed, scale))

    return make


@pytest.fixture
def states():
    """Return random observations with absent slots, and masks with a legal action in each row."""

    def make(policy, num_rows, seed=1):
        rng = np.random.default_rng(seed)
        schema = policy.card.observation
        num_features = len(schema.slot_features)
        observations = rng.normal(size=(num_rows, policy.observation_size)).astype(np.float32)
        present = rng.random((num_rows, schema.num_slots)) < 0.7
        observations[:, : schema.num_slots * num_features : num_features] = present
        masks = rng.random((num_rows, policy.num_actions)) < 0.5
        masks[:, schema.num_levels :] &= present
        masks[np.arange(num_rows), rng.integers(0, schema.num_levels, num_rows)] = True
        return observations, masks

    return make
