from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from sched_env.agents.export import (
    MaskedActor,
    check_parity,
    env_layout,
    exported_weights,
    load_weights,
    observation_shape,
    policy_card,
    policy_spec,
    torch_actor,
)
from sched_env.agents.onnx import check_onnx_installed, write_onnx
from sched_env.agents.prior import SoftPrior
from sched_env.config import AgentConfig, EnvConfig, ExperimentConfig
from sched_env.config.agent import PriorConfig
from sched_env.errors import MissingExtraError
from sched_env.policy.runtime import ExportedPolicy

PRIOR = PriorConfig(kind="weighted_sjf")


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
    prior = SoftPrior(spec.shape, spec.prior) if spec.prior is not None else None
    policy = ExportedPolicy(policy_card(experiment, num_decisions=7), exported_weights(actor))
    return MaskedActor(actor, prior), policy


@pytest.mark.parametrize("network", ["pointer", "mlp"])
@pytest.mark.parametrize("prior", [PriorConfig(), PRIOR], ids=["no_prior", "weighted_sjf"])
def test_the_runtime_computes_what_torch_computes(network: str, prior: PriorConfig) -> None:
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


@pytest.mark.parametrize("network", ["pointer", "mlp"])
def test_weights_come_back_from_an_exported_policy(network: str) -> None:
    experiment = _experiment(network, PRIOR)
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
    ("network", "prior"), [("pointer", PRIOR), ("mlp", PriorConfig(kind="none"))]
)
def test_an_onnx_graph_decides_as_the_policy(
    network: str, prior: PriorConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import onnxruntime

    experiment = _experiment(network, prior)
    _, policy = _trained_like(experiment)
    write_onnx(policy, tmp_path / "policy.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["policy.onnx"]
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
