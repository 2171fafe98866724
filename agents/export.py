"""From trained networks to policy folders, and back to torch.

The exported tensors are those of `sched_env.policy.pointer` and `sched_env.policy.mlp`; the critic
and the privileged columns stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sched_env.agents.networks import FlatNet, ObservationShape, PointerNet
from sched_env.agents.policies import PolicySpec
from sched_env.agents.prior import SoftPrior, SoftScore, make_prior
from sched_env.agents.prior_sources import (
    card_prior,
    exported_prior,
    prior_parameters,
    prior_score,
)
from sched_env.config import AgentConfig, EnvConfig, ExperimentConfig
from sched_env.engine.layout import Layout
from sched_env.errors import PolicyError
from sched_env.policy.card import (
    MlpArchitecture,
    ObservationSchema,
    PointerArchitecture,
    PolicyCard,
    Scalar,
)
from sched_env.policy.format import write_policy
from sched_env.policy.layers import MASKED_LOGIT
from sched_env.policy.prior import SCORE_PREFIX
from sched_env.policy.runtime import SEARCH_BUDGET, ExportedPolicy, load_policy

if TYPE_CHECKING:
    from sched_env.agents.run_folder import RunFolder

ExportFormat = Literal["safetensors", "onnx"]


def env_layout(env: EnvConfig) -> Layout:
    """Return the layout of observations that ``env`` gives."""
    seen = env.observation
    return Layout(seen.num_waiting_slots, seen.num_running_slots, seen.privileged)


def observation_shape(layout: Layout) -> ObservationShape:
    """Return the sizes that networks are built from."""
    return ObservationShape(
        num_waiting_slots=layout.num_waiting_slots,
        num_running_slots=layout.num_running_slots,
        num_slot_features=len(layout.slot_features),
        num_globals=len(layout.global_features),
        num_privileged=len(layout.privileged_features),
        num_levels=layout.num_levels,
    )


def policy_spec(agent: AgentConfig, layout: Layout) -> PolicySpec:
    """Return what a policy for ``layout`` is built from."""
    return PolicySpec(
        shape=observation_shape(layout),
        network=agent.network,
        hidden_size=agent.hidden_size,
        hidden_sizes=agent.mlp_hidden_sizes,
        critic_sizes=agent.critic_hidden_sizes,
        prior=prior_parameters(agent.prior, layout),
    )


def exported_weights(
    actor: PointerNet | FlatNet, prior: SoftPrior | SoftScore | None = None
) -> dict[str, np.ndarray]:
    """Return the tensors of actor and prior as the runtime names and lays them out, float32."""
    weights: dict[str, np.ndarray] = {}
    if isinstance(prior, SoftScore):
        weights |= {SCORE_PREFIX + key: np.array(a) for key, a in prior.given.weights.items()}
    if isinstance(actor, PointerNet):
        named = {
            name.replace("_", ".", 1): parameter for name, parameter in actor.named_parameters()
        }
        return weights | {name: _to_numpy(parameter) for name, parameter in named.items()}
    for index, layer in enumerate(_linear_layers(actor)):
        weights[f"layer.{index}.weight"] = _to_numpy(layer.weight.T)
        weights[f"layer.{index}.bias"] = _to_numpy(layer.bias)
    return weights


def load_weights(actor: PointerNet | FlatNet, weights: Mapping[str, np.ndarray]) -> None:
    """Put exported tensors into ``actor``."""
    with torch.no_grad():
        if isinstance(actor, PointerNet):
            for name, parameter in actor.named_parameters():
                parameter.copy_(_to_torch(weights[name.replace("_", ".", 1)]))
            return
        for index, layer in enumerate(_linear_layers(actor)):
            layer.weight.copy_(_to_torch(weights[f"layer.{index}.weight"]).T)
            layer.bias.copy_(_to_torch(weights[f"layer.{index}.bias"]))


def _linear_layers(actor: FlatNet) -> list[nn.Linear]:
    return [layer for layer in actor.layers if isinstance(layer, nn.Linear)]


def _to_numpy(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32, order="C")


def _to_torch(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))


def policy_card(
    experiment: ExperimentConfig,
    *,
    num_decisions: int,
    metrics: Sequence[Mapping[str, Any]] = (),
) -> PolicyCard:
    """Return what the exported policy of a run says about itself."""
    agent, env = experiment.agent, experiment.env
    architecture = (
        PointerArchitecture(hidden_size=agent.hidden_size)
        if agent.network == "pointer"
        else MlpArchitecture(hidden_sizes=agent.mlp_hidden_sizes, activation="tanh")
    )
    training: dict[str, Scalar | tuple[Scalar, ...]] = {
        "run": f"{experiment.name}__seed{experiment.seed}",
        "algorithm": agent.algorithm,
        "seed": experiment.seed,
        "num_decisions": num_decisions,
        "traces": tuple(Path(trace).name for trace in env.trace),
        "split": env.split,
        "loads": env.episode.load,
        "length_prediction": env.service.length_prediction.kind,
        "shed_hopeless": env.service.shed_hopeless,
        "privileged_critic": env.observation.privileged,
    }
    if agent.prior.kind == "linear_score":
        score = prior_score(str(agent.prior.policy))
        training["prior"] = score.name
        training["prior_search_requests"] = score.card.training.get(SEARCH_BUDGET)
    if len(experiment.conditions.slo_factors) > 1:
        training["slo_factors"] = experiment.conditions.slo_factors
    if len(experiment.conditions.kv_factors) > 1:
        training["kv_factors"] = experiment.conditions.kv_factors
    return PolicyCard(
        name=f"{experiment.name}_seed{experiment.seed}",
        observation=ObservationSchema.from_layout(env_layout(env)),
        screen=env.observation.screen,
        architecture=architecture,
        prior=card_prior(agent.prior),
        training=training,
        metrics=tuple(dict(row) for row in metrics),
    )


class MaskedActor(nn.Module):
    """Actor, prior and mask as one module: public observations and masks in, logits out."""

    def __init__(self, actor: PointerNet | FlatNet, prior: SoftPrior | SoftScore | None) -> None:
        """Keep the parts."""
        super().__init__()
        self.actor = actor
        self.prior = prior
        self.has_fixed_sizes = False
        """Use operations of fixed sizes only, as graph formats need them."""

    def forward(self, observations: Tensor, masks: Tensor) -> Tensor:
        """Return logits, float32 (batch, num_actions), -1e8 where an action is illegal.

        Args:
            observations: float32 (batch, num_public).
            masks: bool (batch, num_actions).
        """
        if self.has_fixed_sizes and isinstance(self.actor, PointerNet):
            logits = self.actor.dense_logits(observations)
        else:
            logits = self.actor(observations)
        if self.prior is not None:
            logits = logits + self.prior(observations, masks)
        return torch.where(masks, logits, float(MASKED_LOGIT))


def torch_actor(policy: ExportedPolicy) -> MaskedActor:
    """Return an exported policy's network in torch."""
    card = policy.card
    schema = card.observation
    shape = ObservationShape(
        num_waiting_slots=schema.num_waiting_slots,
        num_running_slots=schema.num_running_slots,
        num_slot_features=len(schema.slot_features),
        num_globals=len(schema.global_features),
        num_levels=schema.num_levels,
    )
    if card.normalisation.kind != "none":
        raise PolicyError(f"policy {card.name!r} normalises observations; torch cannot rebuild it")
    if card.architecture.kind == "linear_score":
        raise PolicyError(f"policy {card.name!r} is a linear score; torch has no network for it")
    if card.architecture.kind == "pointer":
        actor: PointerNet | FlatNet = PointerNet(shape, card.architecture.hidden_size)
    else:
        actor = FlatNet(shape, card.architecture.hidden_sizes)
    load_weights(actor, policy.weights)
    return MaskedActor(actor, make_prior(shape, exported_prior(policy))).eval()


def export_run(
    run_dir: str | Path, out: str | Path | None = None, format: ExportFormat = "safetensors"
) -> Path:
    """Export the policy of a training run.

    Args:
        run_dir: A run folder; of an unfinished run, the newest checkpoint is exported.
        out: Where to write; by default ``policy/`` in the run folder.
        format: "safetensors" writes a policy folder; "onnx" adds ``policy.onnx`` to it.

    Returns:
        The policy folder.

    Raises:
        ConfigError: ``run_dir`` is no run folder, or the run has no checkpoint yet, or it began
            with another prior than is there now.
        PolicyError: ``out`` holds something else, or the formats disagree.
        MissingExtraError: "onnx" without the extra of that name.
    """
    from sched_env.agents.onnx import check_onnx_installed, write_onnx
    from sched_env.agents.run_folder import RunFolder

    if format == "onnx":
        check_onnx_installed()
    elif format != "safetensors":
        raise PolicyError(f"no export format {format!r}: use 'safetensors' or 'onnx'")
    folder = RunFolder(Path(run_dir))
    experiment = folder.read_config()
    place = Path(out) if out is not None else folder.policy
    if folder.policy.is_dir():
        stored = load_policy(folder.policy)
        weights, card = stored.weights, stored.card
    else:
        weights, card = _weights_of_checkpoint(folder, experiment)
    if place.resolve() != folder.policy.resolve() or not folder.policy.is_dir():
        write_policy(place, weights, card)
    if format == "onnx":
        write_onnx(load_policy(place), place / "policy.onnx")
    return place


def _weights_of_checkpoint(
    folder: RunFolder, experiment: ExperimentConfig
) -> tuple[dict[str, np.ndarray], PolicyCard]:
    from sched_env.agents.checkpoint import latest_checkpoint, load_checkpoint
    from sched_env.agents.prior_sources import prior_hashes
    from sched_env.agents.run_folder import refuse_changed_inputs
    from sched_env.errors import ConfigError

    place = latest_checkpoint(folder.checkpoints)
    if place is None:
        raise ConfigError(
            f"{folder.path} has no checkpoint yet; let sched-env train go on until its first one"
        )
    refuse_changed_inputs(folder, prior_hashes(experiment))
    checkpoint = load_checkpoint(place)
    spec = policy_spec(experiment.agent, env_layout(experiment.env))
    actor = spec.make_actor()
    kept = checkpoint.part("best.") or checkpoint.part("average.")
    actor.load_state_dict({name: torch.from_numpy(array) for name, array in kept.items()})
    card = policy_card(experiment, num_decisions=checkpoint.values["num_timesteps"])
    return exported_weights(actor, make_prior(spec.shape, spec.prior)), card
