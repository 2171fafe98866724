"""A network learns what serves best under each condition without being told which one it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

import sched_env.agents.cloning as cloning_module
from sched_env.agents.cloning import NUM_ROUNDS, clone
from sched_env.agents.export import env_layout
from sched_env.agents.prior_sources import around_score
from sched_env.agents.score_search.scenarios import Outcome, ScenarioSource
from sched_env.agents.teachers import (
    LONG,
    NUM_HOME_TRIALS,
    NUM_TRIALS,
    serve_together,
)
from sched_env.agents.teaching_rules import home_teachers, stretched_teachers
from sched_env.config import EnvConfig, TuningConfig
from sched_env.config.experiment import CloningConfig, ObjectiveConfig
from sched_env.errors import PolicyError
from sched_env.policy.card import (
    LinearScorePrior,
    ObservationSchema,
    PointerArchitecture,
    PolicyCard,
)
from sched_env.policy.registry import resolve_policy
from sched_env.policy.runtime import ExportedPolicy
from sched_env.policy.scores import linear_score
from sched_env.simulator.simulate import seen_by
from sched_env.workload import synthesize
from sched_env.workload.convert import write_trace

pytest.importorskip("cmaes")

ENV = EnvConfig(trace=("azure_code",), observation={"num_waiting_slots": 6, "num_running_slots": 4})
SMALL = TuningConfig(
    loads=(1.0,), slo_factors=(1.0, 0.6), requests_per_scenario=60, validation_scenarios=6
)
PIECES = 8


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
    return clone(network, ENV, SMALL, seed=1, cloning=CloningConfig(pieces=PIECES))


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
    trials = 2 * NUM_HOME_TRIALS * LONG * len(home_teachers(network))
    runs = trials + NUM_ROUNDS * 2 * PIECES + 2 * 6
    assert training["clone_requests"] == 60 * runs
    same = [name for name in network.weights if name.startswith("prior.")]
    assert all(np.array_equal(cloned.policy.weights[k], network.weights[k]) for k in same)


def test_the_cost_is_counted_where_a_part_is_shorter_than_a_piece(network, tmp_path):
    table = synthesize("chatbot", num_requests=120, seed=0)
    trace = write_trace(table, tmp_path / "short.parquet")
    one_slo = SMALL.replace(slo_factors=(1.0,), requests_per_scenario=1000, validation_scenarios=2)
    env, cloning = ENV.replace(trace=(str(trace),)), CloningConfig(pieces=2)
    result = clone(network, env, one_slo, seed=1, cloning=cloning)
    runs = NUM_HOME_TRIALS * len(home_teachers(network)) + NUM_ROUNDS * 2
    spent = runs * len(table.split("train")) + 2 * 2 * len(table.split("validation"))
    assert result.policy.card.training["clone_requests"] == spent


def test_cloning_repeats_itself(cloned, network):
    again = clone(network, ENV, SMALL, seed=1, cloning=CloningConfig(pieces=PIECES))
    assert again.goodputs == cloned.goodputs
    for name, tensor in cloned.policy.weights.items():
        assert np.array_equal(again.policy.weights[name], tensor)


def test_another_prior_may_take_over_and_the_network_may_grow(network):
    cloning = CloningConfig(
        pieces=2,
        stretches=({}, {"output": 2.0}),
        prior="pretrained/tuned_stretched",
        hidden_size=12,
        num_waiting_slots=9,
        num_running_slots=5,
        requests_per_piece=50,
    )
    small = SMALL.replace(validation_scenarios=2)
    result = clone(network, ENV, small, seed=1, cloning=cloning)
    assert [one.stretch.output for one in result.teachers] == [1.0, 1.0, 2.0, 2.0]
    card = result.policy.card
    trials = 2 * NUM_HOME_TRIALS * LONG * len(home_teachers(network, network))
    trials += 2 * NUM_TRIALS * len(stretched_teachers(network, network))
    taught = trials + NUM_ROUNDS * 2 * (2 + 1) + 2 * 2
    assert card.training["clone_requests"] == 50 * taught
    score = resolve_policy("pretrained/tuned_stretched")
    before, after = result.goodputs
    assert (card.architecture.hidden_size == 12) == (after > before)
    if after > before:
        assert card.observation.num_waiting_slots == 9
        assert card.observation.num_running_slots == 5
        assert card.training["prior"] == "tuned_stretched"
        assert card.training["prior_search_requests"] == score.card.training["search_requests"]
        for name, tensor in score.weights.items():
            assert np.array_equal(result.policy.weights[f"prior.{name}"], tensor)


def test_the_card_tells_the_tail_of_what_is_kept(network, monkeypatch):
    looks = [Outcome(0.5, 3.0), Outcome(0.6, 2.0)]
    monkeypatch.setattr(cloning_module, "_looks", lambda *_: looks)
    small = SMALL.replace(validation_scenarios=2)
    result = clone(
        network,
        ENV,
        small,
        seed=1,
        cloning=CloningConfig(pieces=1, requests_per_piece=20),
        objective=ObjectiveConfig(p95_ttft_weight=0.1),
    )
    assert result.policy.card.training["validation_goodput"] == 0.6
    assert result.policy.card.training["validation_p95_ttft_s"] == 2.0


@pytest.mark.parametrize("after", [0.6, 0.4])
def test_the_card_tells_whether_the_clone_is_kept(network, monkeypatch, after):
    looks = [Outcome(0.5, 3.0), Outcome(after, 3.0)]
    monkeypatch.setattr(cloning_module, "_looks", lambda *_: looks)
    small = SMALL.replace(validation_scenarios=2)
    cloning = CloningConfig(pieces=1, requests_per_piece=20)
    training = clone(network, ENV, small, seed=1, cloning=cloning).policy.card.training
    assert training["clone_kept"] == (after > 0.5)
    assert training["validation_goodput_of_clone"] == after
    assert training["validation_goodput"] == max(0.5, after)


def test_a_network_around_another_score_decides_as_that_does(network):
    score = resolve_policy("pretrained/tuned_stretched")
    around = around_score(network, score)
    pieces = ScenarioSource(seen_by(network, ENV), SMALL, "train").draw(2, 0, 0)
    states = _Seen(around)
    serve_together(pieces, states)
    as_score = ExportedPolicy(
        score.card.model_copy(update={"observation": network.card.observation}), score.weights
    )
    for observations, masks in states.shown:
        taken, wanted = (one.act(observations, masks) for one in (around, as_score))
        assert np.array_equal(taken, wanted)
    assert len(states.shown) > 50


@dataclass
class _Seen:
    policy: ExportedPolicy
    shown: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def act(self, observations, masks):
        self.shown.append((observations, masks))
        return self.policy.act(observations, masks)


def test_what_is_no_network_around_a_score_takes_no_other(network):
    score = resolve_policy("pretrained/tuned_stretched")
    with pytest.raises(PolicyError, match="no pointer network"):
        around_score(score, score)
