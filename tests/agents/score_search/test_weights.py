"""A polish changes the last layer and the prior, and nothing gets worse on the validation split."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.agents.score_search.scenarios import layout_of
from sched_env.agents.score_search.search import polish
from sched_env.agents.score_search.space import ScoreSpace
from sched_env.agents.score_search.weights import WeightSpace
from sched_env.config import EnvConfig, TuningConfig
from sched_env.errors import PolicyError
from sched_env.policy.card import (
    LinearScorePrior,
    MlpArchitecture,
    NoPrior,
    ObservationSchema,
    PointerArchitecture,
    PolicyCard,
)
from sched_env.policy.runtime import ExportedPolicy

pytest.importorskip("cmaes")

ENV = EnvConfig(trace="azure_code", observation={"num_waiting_slots": 8, "privileged": True})
SMALL = TuningConfig(
    iterations=3,
    population=6,
    scenarios=4,
    requests_per_scenario=60,
    loads=(1.0, 1.4),
    validate_every=1,
    validation_scenarios=6,
)
SEARCHED = {
    *(f"{kind}.{part}" for kind in ("admit", "preempt", "proceed") for part in ("weight", "bias")),
    *(f"prior.{kind}.weight" for kind in ("admit", "preempt", "proceed")),
    "prior.preempt.bias",
    "prior.proceed.bias",
    "prior.watermark",
}


@pytest.fixture(scope="module")
def network() -> ExportedPolicy:
    """Return a pointer network around weighted shortest job first."""
    space = ScoreSpace(layout_of(ENV))
    card = PolicyCard(
        name="network",
        observation=ObservationSchema.from_layout(layout_of(ENV)),
        architecture=PointerArchitecture(hidden_size=4),
        prior=LinearScorePrior(strength=2.0, floor=-9.0),
        training={"run": "made"},
    )
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(0.0, 0.1, shape).astype(np.float32)
        for name, shape in card.tensor_shapes().items()
    }
    score = space.policy(np.zeros(space.size))
    weights |= {f"prior.{name}": tensor for name, tensor in score.weights.items()}
    return ExportedPolicy(card, weights)


def test_the_zero_vector_is_the_start_and_each_number_changes_what_it_should(network) -> None:
    space = WeightSpace(network)
    assert set(space.scales) == SEARCHED
    same = space.policy(np.zeros(space.size))
    assert all(np.array_equal(same.weights[k], network.weights[k]) for k in network.weights)
    moved = space.policy(np.full(space.size, 0.5))
    changes = {k: moved.weights[k] - network.weights[k] for k in network.weights}
    assert {name for name, change in changes.items() if change.any()} == SEARCHED
    assert np.allclose(changes["admit.weight"], 1.0, atol=1e-6)  # half a unit of the prior's size
    assert np.allclose(changes["prior.admit.weight"], 1.0, atol=1e-5)
    assert space.policy(np.full(space.size, -0.5)).weights["prior.watermark"] == 0


def test_a_polish_repeats_itself_and_keeps_what_did_best(network) -> None:
    first, again = polish(network, ENV, SMALL, 3), polish(network, ENV, SMALL, 3)
    assert first.looks == again.looks
    for name, tensor in first.policy.weights.items():
        assert tensor.tobytes() == again.policy.weights[name].tobytes()
    training = first.policy.card.training
    assert training["run"] == "made"
    assert training["polish_requests"] == 60 * (3 * 6 * 4 + 4 * 6)
    assert training["validation_goodput"] == max(one.validation_goodput for one in first.looks)
    assert training["validation_goodput_before_polish"] == first.looks[0].validation_goodput
    assert first.policy.name == "network"
    assert polish(network, ENV, SMALL, 4).looks != first.looks


def test_what_a_second_polish_spends_is_added_to_the_first(network) -> None:
    once = polish(network, ENV, SMALL, 3).policy
    twice = polish(once, ENV, SMALL, 4).policy.card.training
    assert twice["polish_requests"] == 2 * int(once.card.training["polish_requests"])


def test_a_later_polish_leaves_what_the_card_says_of_the_earlier_ones(network) -> None:
    shorter = SMALL.replace(iterations=1, population=4, scenarios=2)
    first = polish(network, ENV, SMALL, 3).policy
    second = polish(first, ENV, shorter, 4).policy
    third = polish(second, ENV, SMALL, 5).policy.card.training
    assert third["polish_iterations"] == third["polish_3_iterations"] == 3
    assert third["polish_2_iterations"] == 1
    changed = {"polish_requests", "validation_goodput"}
    told = first.card.training.items()
    assert {key: third[key] for key, _ in told if key not in changed} == {
        key: value for key, value in told if key not in changed
    }
    before = "validation_goodput_before_polish_2"
    assert third[before] == second.card.training[before]


@pytest.mark.parametrize("prior", [NoPrior(), LinearScorePrior()])
@pytest.mark.parametrize("num_waiting_slots", [None, 5])
def test_a_flat_network_is_refused(prior, num_waiting_slots) -> None:
    card = PolicyCard(
        name="flat",
        observation=ObservationSchema.from_layout(layout_of(ENV)),
        architecture=MlpArchitecture(hidden_sizes=()),
        prior=prior,
    )
    weights = {k: np.zeros(shape, np.float32) for k, shape in card.tensor_shapes().items()}
    flat, tuning = ExportedPolicy(card, weights), SMALL.replace(num_waiting_slots=num_waiting_slots)
    with pytest.raises(PolicyError, match="'flat' is a flat network: give a linear score or"):
        polish(flat, ENV, tuning)
