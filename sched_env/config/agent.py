"""The learning agent: its network and how it is trained."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import pydantic

from sched_env.config.model import (
    ConfigModel,
    Count,
    Flag,
    Fraction,
    HiddenSize,
    NonNegative,
    Number,
    Positive,
    Text,
)


class PriorConfig(ConfigModel):
    """A heuristic that the network starts from, as logits added to its own.

    The formulas stand in ``sched_env.policy.prior``.
    """

    kind: Literal["none", "weighted_sjf", "linear_score"] = "weighted_sjf"
    """none: the network alone; weighted_sjf: largest weight per predicted work first;
    linear_score: the score in the folder ``policy``."""

    policy: Text | None = None
    """Folder or name of the linear score, such as ``sched-env tune`` writes; for linear_score."""

    strength: NonNegative = 1.5
    """Logits per unit of score below the best request."""

    floor: Number = -8.0
    """No request falls further than this behind the best."""

    proceed_stop: Number = 2.0
    """Logit of going on where nothing more can be admitted."""

    proceed_go: Number = -3.0
    """Logit of going on while something can still be admitted."""

    lower_level: Number = -3.0
    """Added for a prefill level below the full one."""

    hold_prefill: Number = -3.0
    """Added for the lowest level, which holds all prefill."""

    preempt_bias: Number = -3.0
    """Added for a preemption; where one is forced, all choices carry it alike."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _accept_bare_name(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value in ("none", "weighted_sjf"):
            return {"kind": value}
        return {"kind": "linear_score", "policy": value}

    @pydantic.model_validator(mode="after")
    def _check_policy(self) -> Self:
        if (self.kind == "linear_score") != (self.policy is not None):
            raise ValueError(
                "kind linear_score and the folder of its policy go together: give both, or neither"
            )
        return self


class AgentConfig(ConfigModel):
    """The network and the settings of PPO."""

    config_kind: ClassVar[str | None] = "agent"

    algorithm: Literal["maskable_ppo", "ppo"] = "maskable_ppo"
    """maskable_ppo: illegal actions are never drawn; ppo: the environment replaces them."""

    network: Literal["pointer", "mlp"] = "pointer"
    """pointer: one scorer shared by all slots; mlp: one flat network."""

    hidden_size: HiddenSize = 32
    """Width of the pointer network."""

    mlp_hidden_sizes: tuple[Count, ...] = pydantic.Field(default=(64, 64), min_length=1)
    """Widths of the flat network's hidden layers."""

    critic_hidden_sizes: tuple[Count, ...] = pydantic.Field(default=(64, 64), min_length=1)
    """Widths of the value network's hidden layers; it shares nothing with the actor."""

    prior: PriorConfig = PriorConfig()
    """A heuristic to start from: its name, the folder of a linear score, or its numbers."""

    num_envs: Count = 128
    """Environments stepped together."""

    num_steps: Count = 64
    """Decisions of each environment between two updates."""

    minibatch_size: Annotated[Count, pydantic.Field(ge=2)] = 1024
    """Decisions in one gradient step, at least two: advantages are compared within it."""

    num_epochs: Count = 3
    """Passes over the decisions of one update."""

    learning_rate: Positive = 3e-3
    """Step size of the actor at the start; it falls linearly."""

    critic_learning_rate: Positive = 1e-3
    """Step size of the critic at the start; it falls linearly."""

    final_learning_rate: Fraction = 0.02
    """Part of both step sizes that is left at the end."""

    clip_range: Positive = 0.2
    """How far the probability ratio may leave 1 before its gradient stops."""

    gae_lambda: Fraction = 0.99
    """Weight of longer advantage estimates, per decision."""

    entropy_coefficient: NonNegative = 0.003
    """Weight of the policy's entropy; with a prior, of its KL divergence from the prior instead."""

    final_entropy_coefficient: NonNegative | None = None
    """Entropy coefficient at the end; it moves there over the second half; null: it stays."""

    value_coefficient: NonNegative = 0.5
    """Weight of the value loss."""

    max_grad_norm: Positive = 0.5
    """Gradients are scaled down to this norm."""

    normalise_returns: Flag = True
    """Divide rewards by the running standard deviation of the discounted return."""

    weight_average: Fraction = 0.8
    """Share of the old in the running average of actor weights per update; 0: no average."""

    keep: Literal["best", "last"] = "best"
    """Which weights become the policy: best on the validation split, or the last."""

    validation_seeds: Count = 2
    """Seeds of each validation, at each load of the comparison."""

    num_threads: Count = 1
    """Threads of torch; more than one collapses on a busy machine."""

    @pydantic.model_validator(mode="after")
    def _check_minibatch(self) -> Self:
        collected = self.num_envs * self.num_steps
        if collected < 2:
            raise ValueError(
                "num_envs 1 x num_steps 1 is one decision an update, and learning compares at "
                "least 2: raise one of them"
            )
        if self.minibatch_size > collected:
            raise ValueError(
                f"minibatch_size {self.minibatch_size} is more than the {collected} decisions of "
                f"one update (num_envs {self.num_envs} x num_steps {self.num_steps}); lower it"
            )
        return self
