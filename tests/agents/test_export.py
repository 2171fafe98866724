from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import sched_env.baselines  # noqa: F401  (registers the heuristics)
from sched_env.agents.export import (
    MaskedActor,
    env_layout,
    exported_weights,
    load_weights,
    observation_shape,
    policy_card,
    policy_spec,
    torch_actor,
)
from sched_env.agents.onnx import check_onnx_installed, write_onnx
from sched_env.agents.parity import check_parity
from sched_env.agents.prior import make_prior
from sched_env.agents.prior_sources import prior_parameters
from sched_env.config import AgentConfig, EnvConfig, ExperimentConfig
from sched_env.config.agent import PriorConfig
from sched_env.engine.layout import Layout
from sched_env.errors import MissingExtraError, PolicyError
from sched_env.policy.format import write_policy
from sched_env.policy.runtime import ExportedPolicy, load_policy
from sched_env.policy.scores import linear_score

PRIOR = PriorConfig(kind="weighted_sjf")
LAYOUT = Layout(num_waiting_slots=5, num_running_slots=3)


@pytest.fixture
def score(tmp_path: Path) -> PriorConfig:
    """Return a linear score as a prior, with a watermark and a dynamic prefill level."""
    policy = linear_score(
        "score",
        admit={"density": 5.0, "wait": 1.0},
        preempt={"density": -5.0, "computed": -1.0},
        preempt_bias=-4.0,
        stop={"free_kv": -2.0},
        stop_bias=-1.0,
        level={"decodes_at_risk": -1.0},
        watermark=0.1,
        layout=LAYOUT,
    )
    write_policy(tmp_path / "score", policy.weights, policy.card)
    return PriorConfig.from_mapping({"kind": "linear_score", "policy": str(tmp_path / "score")})


def _experiment(network: str, prior: PriorConfig) -> ExperimentConfig:
    env = EnvConfig(observation={"num_waiting_slots": 5, "num_running_slots": 3})
    agent = AgentConfig(network=network, prior=prior, hidden_size=16, mlp_hidden_sizes=(24, 16))
    return ExperimentConfig(name="unit", env=env, agent=agent)


def _states(shape: object, count: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Return observations with absent slots, and masks that are legal only for present ones."""
    rng = np.random.default_rng(1)
    observations = rng.uniform(-2, 2, (count, shape.num_public)).astype(np.float32)
    slots = observations[:, : shape.num_slot_columns].reshape(count, shape.num_slots, -1)
    present = rng.random((count, shape.num_slots)) < 0.6
    present[:20] = False
    slots *= present[:, :, None]
    slots[:, :, 0] = present
    levels = rng.random((count, shape.num_levels)) < 0.5
    levels[:, -1] = True
    return observations, np.hstack([levels, present & (rng.random(present.shape) < 0.7)])


def _trained_like(experiment: ExperimentConfig) -> tuple[MaskedActor, ExportedPolicy]:
    """Return a network with weights large enough to matter, and its exported form."""
    torch.manual_seed(3)
    layout = env_layout(experiment.env)
    spec = policy_spec(experiment.agent, layout)
    actor = spec.make_actor()
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    prior = make_prior(spec.shape, spec.prior)
    card = policy_card(experiment, num_decisions=7)
    return MaskedActor(actor, prior), ExportedPolicy(card, exported_weights(actor, prior))


@pytest.mark.parametrize("network", ["pointer", "mlp"])
@pytest.mark.parametrize("kind", ["none", "weighted_sjf", "linear_score"])
def test_the_runtime_computes_what_torch_computes(
    network: str, kind: str, score: PriorConfig
) -> None:
    prior = score if kind == "linear_score" else PriorConfig(kind=kind)
    experiment = _experiment(network, prior)
    actor, policy = _trained_like(experiment)
    observations, masks = _states(observation_shape(env_layout(experiment.env)))
    parity = check_parity(actor, policy, observations, masks)
    assert parity.num_equal == parity.num_states == 500
    assert parity.max_logit_difference < 1e-4
    actor.has_fixed_sizes = True
    assert check_parity(actor, policy, observations, masks).max_logit_difference < 1e-4


def test_parity_counts_states_in_which_actions_differ() -> None:
    experiment = _experiment("pointer", PriorConfig())
    actor, policy = _trained_like(experiment)
    observations, masks = _states(observation_shape(env_layout(experiment.env)))
    with torch.no_grad():
        actor.actor.proceed_bias += 1.0
    parity = check_parity(actor, policy, observations, masks)
    assert parity.num_equal < parity.num_states
    assert parity.max_logit_difference == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("kind", ["weighted_sjf", "linear_score"])
@pytest.mark.parametrize("network", ["pointer", "mlp"])
def test_weights_come_back_from_an_exported_policy(
    network: str, kind: str, score: PriorConfig
) -> None:
    experiment = _experiment(network, PRIOR if kind == "weighted_sjf" else score)
    actor, policy = _trained_like(experiment)
    rebuilt = torch_actor(policy)
    observations, masks = _states(observation_shape(env_layout(experiment.env)))
    inputs = torch.from_numpy(observations), torch.from_numpy(masks)
    assert torch.equal(rebuilt(*inputs), actor(*inputs))
    other = policy_spec(experiment.agent, env_layout(experiment.env)).make_actor()
    load_weights(other, policy.weights)
    assert all(
        torch.equal(a, b) for a, b in zip(other.parameters(), actor.actor.parameters(), strict=True)
    )


def test_a_zero_network_acts_as_its_prior() -> None:
    experiment = _experiment("pointer", PRIOR)
    actor, _ = _trained_like(experiment)
    with torch.no_grad():
        for parameter in actor.actor.parameters():
            parameter.zero_()
    observations, masks = _states(observation_shape(env_layout(experiment.env)))
    logits = actor(torch.from_numpy(observations), torch.from_numpy(masks)).detach().numpy()
    actions = logits.argmax(axis=1)
    first, num_waiting = 4, 5
    admits = masks[:, first : first + num_waiting]
    assert (actions[admits.any(axis=1)] >= first).all()
    only_proceed = ~masks[:, first:].any(axis=1)
    assert (actions[only_proceed] == first - 1).all()


def test_a_zero_network_acts_as_the_linear_score_in_a_folder(score: PriorConfig) -> None:
    experiment = _experiment("pointer", score)
    _, policy = _trained_like(experiment)
    zeros = {name: np.zeros_like(tensor) for name, tensor in policy.weights.items()}
    kept = {name: one for name, one in policy.weights.items() if name.startswith("prior.")}
    untrained = ExportedPolicy(policy.card, zeros | kept)
    observations, masks = _states(observation_shape(LAYOUT))
    expected = load_policy(str(score.policy)).act(observations, masks)
    assert untrained.act(observations, masks).tolist() == expected.tolist()
    assert len(set(expected.tolist())) > 4


def test_a_linear_score_is_a_prior_for_any_number_of_slots(score: PriorConfig) -> None:
    ours, others = (prior_parameters(score, layout) for layout in (LAYOUT, Layout(24, 2)))
    assert ours is not None
    assert others is not None
    assert ours.weights.keys() == others.weights.keys()


def test_a_prior_that_is_no_linear_score_or_has_other_features_is_refused(
    score: PriorConfig, tmp_path: Path
) -> None:
    stored = load_policy(str(score.policy))
    fewer = stored.card.observation.slot_features[:-1]
    observation = stored.card.observation.model_copy(update={"slot_features": fewer})
    card = stored.card.model_copy(update={"observation": observation})
    cut = {
        k: v[:-1] if k in ("admit.weight", "preempt.weight") else v
        for k, v in stored.weights.items()
    }
    write_policy(tmp_path / "other", cut, card)
    with pytest.raises(PolicyError, match="slot feature 21 is missing here"):
        prior_parameters(PriorConfig(kind="linear_score", policy=str(tmp_path / "other")), LAYOUT)
    with pytest.raises(PolicyError, match="sjf is no linear score"):
        prior_parameters(PriorConfig(kind="linear_score", policy="sjf"), LAYOUT)
    with pytest.raises(PolicyError, match="no folder"):
        prior_parameters(PriorConfig(kind="linear_score", policy=str(tmp_path / "none")), LAYOUT)


def test_the_card_names_run_traffic_and_prior() -> None:
    card = policy_card(_experiment("pointer", PRIOR), num_decisions=7)
    assert card.name == "unit_seed0"
    assert card.training["num_decisions"] == 7
    assert card.training["traces"] == ("azure_conv",)
    assert card.prior.score_feature == "density"


def test_onnx_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"sched-env\[onnx\]"):
        check_onnx_installed()


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="the extra onnx is not installed",
)
@pytest.mark.parametrize(
    ("network", "kind"), [("pointer", "weighted_sjf"), ("mlp", "none"), ("pointer", "linear_score")]
)
def test_an_onnx_graph_decides_as_the_policy(
    network: str,
    kind: str,
    score: PriorConfig,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    import onnxruntime

    prior = score if kind == "linear_score" else PriorConfig(kind=kind)
    experiment = _experiment(network, prior)
    _, policy = _trained_like(experiment)
    write_onnx(policy, tmp_path / "policy.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.onnx", "score"]
    assert capfd.readouterr().err == ""
    session = onnxruntime.InferenceSession(
        str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"]
    )
    observations, masks = _states(observation_shape(env_layout(experiment.env)))
    for count in (1, 500):  # the batch is of any size
        given = {"observations": observations[:count], "masks": masks[:count]}
        (logits,) = session.run(None, given)
        expected = policy.logits(observations[:count], masks[:count])
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
        assert logits.argmax(axis=1).tolist() == policy.act(*given.values()).tolist()
