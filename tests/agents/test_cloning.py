"""A network learns what serves best under each condition without being told which one it is."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.cloning import NUM_ROUNDS, clone
from sched_env.agents.export import env_layout
from sched_env.agents.teachers import NUM_TRIALS, teachers_of
from sched_env.config import EnvConfig, TuningConfig
from sched_env.config.experiment import CloningConfig
from sched_env.policy.card import (
    LinearScorePrior,
    ObservationSchema,
    PointerArchitecture,
    PolicyCard,
)
from sched_env.policy.runtime import ExportedPolicy
from sched_env.policy.scores import linear_score

pytest.importorskip("cmaes")

ENV = EnvConfig(trace=("azure_code",), observation={"num_waiting_slots": 6, "num_running_slots": 4})
SMALL = TuningConfig(
    loads=(1.0,), slo_factors=(1.0, 0.6), requests_per_scenario=60, validation_scenarios=6
)


@pytest.fixture(scope="module")
def network() -> ExportedPolicy:
    """Return a pointer network that does nothing around a score that always takes half."""
    layout = env_layout(ENV)
    card = PolicyCard(
        name="half",
        observation=ObservationSchema.from_layout(layout),
        architecture=PointerArchitecture(hidden_size=8),
        prior=LinearScorePrior(strength=2.0, floor=-9.0),
        training={"run": "made"},
    )
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(0.0, 0.05, shape).astype(np.float32)
        for name, shape in card.tensor_shapes().items()
    }
    score = linear_score(
        "half", admit={"density": 5.0}, preempt={"density": -5.0}, level_bias=0.5, layout=layout
    )
    weights |= {f"prior.{name}": tensor for name, tensor in score.weights.items()}
    return ExportedPolicy(card, weights)


@pytest.fixture(scope="module")
def cloned(network):
    return clone(network, ENV, SMALL, seed=1, cloning=CloningConfig(pieces=2))


def test_what_does_better_on_the_validation_split_is_kept_and_the_card_tells_the_cost(
    cloned, network
):
    before, after = cloned.goodputs
    training = cloned.policy.card.training
    assert training["validation_goodput"] == max(before, after)
    assert training["validation_goodput_before_cloning"] == before
    changed = not np.array_equal(
        cloned.policy.weights["proceed.weight"], network.weights["proceed.weight"]
    )
    assert changed == (after > before)
    assert training["run"] == "made"
    assert 0.5 < training["clone_agreement"] <= 1.0
    runs = 2 * NUM_TRIALS * len(teachers_of(network)) + NUM_ROUNDS * 2 * 2 + 2 * 6
    assert training["clone_requests"] == 60 * runs
    same = [name for name in network.weights if name.startswith("prior.")]
    assert all(np.array_equal(cloned.policy.weights[k], network.weights[k]) for k in same)


def test_cloning_repeats_itself(cloned, network):
    again = clone(network, ENV, SMALL, seed=1, cloning=CloningConfig(pieces=2))
    assert again.goodputs == cloned.goodputs
    for name, tensor in cloned.policy.weights.items():
        assert np.array_equal(again.policy.weights[name], tensor)


def test_a_specialist_may_teach_and_the_network_may_grow(network):
    cloning = CloningConfig(
        pieces=2, stretches=({}, {"output": 2.0}), search_iterations=2, hidden_size=12
    )
    small = SMALL.replace(population=4, scenarios=2, validation_scenarios=2)
    result = clone(network, ENV, small, seed=1, cloning=cloning)
    assert [one.stretch.output for one in result.teachers] == [1.0, 1.0, 2.0, 2.0]
    assert result.policy.card.architecture.hidden_size == 12
    searched = 60 * (2 * 4 * 2 + 2 * 2)
    taught = 4 * NUM_TRIALS * (len(teachers_of(network)) + 1) + NUM_ROUNDS * 2 * (2 + 1) + 2 * 2
    assert result.policy.card.training["clone_requests"] == searched + 60 * taught
