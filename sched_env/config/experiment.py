"""One training run: an environment, an agent, and how the result is judged."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Self

import pydantic

from sched_env.config.agent import AgentConfig
from sched_env.config.env import EnvConfig, Names, Split
from sched_env.config.label import Label
from sched_env.config.model import (
    ConfigModel,
    Count,
    CountOrZero,
    HiddenSize,
    NonNegative,
    Positive,
    Seed,
    SloFactor,
    SlotCount,
    Text,
)
from sched_env.config.tuning import StepSize, StretchConfig, TuningConfig


class ComparisonConfig(ConfigModel):
    """How policies are compared: on the same requests, server and seeds."""

    policies: Names = ("fcfs", "fixed_priority", "aging", "deadline", "sjf", "weighted_sjf")
    """Policies to compare with."""

    loads: tuple[Positive, ...] = pydantic.Field(default=(0.8, 1.0, 1.3), min_length=1)
    """Arrival rates over what fcfs can drain."""

    num_seeds: Count = 5
    """Paired seeds at each load."""

    split: Split = "test"
    """Part of the trace, never seen in training."""


class ConditionsConfig(ConfigModel):
    """Conditions that training and validation meet side by side, each with each."""

    slo_factors: tuple[SloFactor, ...] = pydantic.Field(default=(1.0,), min_length=1)
    """Multiples of the environment's SLO factor."""

    kv_factors: tuple[Positive, ...] = pydantic.Field(default=(1.0,), min_length=1)
    """Multiples of the environment's num_blocks."""


class ObjectiveConfig(ConfigModel):
    """What policies are chosen by, in training and in a search: goodput, less what waits cost."""

    p95_ttft_weight: NonNegative = 0.0
    """Weighted goodput that is given up for a second less of P95 TTFT; 0: goodput alone."""

    def worth(self, goodput: float, p95_ttft_s: float) -> float:
        """Return weighted goodput less the cost of the P95 TTFT; without a token that costs 0.

        Args:
            goodput: Weighted goodput, 0 to 1.
            p95_ttft_s: P95 TTFT in seconds, NaN where no request had a token.
        """
        cost = self.p95_ttft_weight * p95_ttft_s
        return goodput if math.isnan(cost) else goodput - cost


class CloningConfig(ConfigModel):
    """How a network learns, at the end of its training, from the best teacher of each condition.

    A condition is a trace, a stretch, an SLO tightness and a KV pool; who may teach is told by
    `sched_env.agents.teachers`.
    """

    pieces: CountOrZero = 0
    """Pieces of the training split for each condition and round; 0: it does not learn so. A
    condition of stretched traces has as many over the number of stretches."""

    stretches: tuple[StretchConfig, ...] = pydantic.Field(default=(StretchConfig(),), min_length=1)
    """Multiples of the traces' lengths, each under every condition."""

    requests_per_piece: Annotated[Count, pydantic.Field(ge=2)] | None = None
    """Requests of each piece, likewise; null: as many as ``tuning.requests_per_scenario``."""

    polish_iterations: CountOrZero = 0
    """Generations of a second polish just before it, shown as many requests as it is and on pieces
    as long; 0: none. It needs the extra ``tune``."""

    prior: Text | None = None
    """A linear score that takes the place of the network's prior before, and teaches as ``own``:
    what the network knows so far teaches as the specialist instead. null: the prior stays."""

    hidden_size: HiddenSize | None = None
    """Hidden units of each layer that the network is widened to before; null: as many as it has."""

    num_waiting_slots: SlotCount | None = None
    """Waiting requests that it is shown from then on, more or fewer; null: as many as before."""

    num_running_slots: SlotCount | None = None
    """Running requests that it is shown from then on; null: as many as before."""


class ExperimentConfig(ConfigModel):
    """Everything that decides a training run."""

    config_kind: ClassVar[str | None] = "experiment"

    name: Label
    """Folder of the runs under runs/."""

    env: EnvConfig = EnvConfig()
    """The environment to train in."""

    conditions: ConditionsConfig = ConditionsConfig()
    """How the environment is varied in training."""

    agent: AgentConfig = AgentConfig()
    """The agent to train."""

    seed: Seed = 0
    """Decides the whole run: initial weights, episodes and actions."""

    total_decisions: Annotated[Count, pydantic.Field(ge=2)] = 400_000
    """Decisions of the agent in training, over all environments."""

    checkpoint_every_decisions: Count = 50_000
    """Decisions between two checkpoints, from which an interrupted run goes on."""

    evaluate_every_decisions: CountOrZero = 50_000
    """Decisions between two evaluations on the validation split; 0: none before the end."""

    objective: ObjectiveConfig = ObjectiveConfig()
    """What the best policy is best at, on the validation split and in searches."""

    comparison: ComparisonConfig = ComparisonConfig()
    """The comparison with heuristics."""

    tuning: TuningConfig = TuningConfig()
    """The search for a linear score, by ``sched-env tune``."""

    polish_iterations: CountOrZero = 0
    """Generations of a search that ends the training: last layer and prior, for final goodput, as
    ``tuning`` says; 0: none. It needs the extra ``tune``."""

    polish_step_size: StepSize = 0.06
    """First standard deviation of that search; it begins nearer to its end than ``tuning`` does."""

    cloning: CloningConfig = CloningConfig()
    """How the policy learns from teachers at the very end."""

    @property
    def is_searched(self) -> bool:
        """Tell whether a search for weights follows PPO, for which the extra ``tune`` is needed."""
        is_second = self.cloning.pieces and self.cloning.polish_iterations
        return bool(self.polish_iterations or is_second)

    @pydantic.model_validator(mode="after")
    def _check_network(self) -> Self:
        width = self.cloning.hidden_size
        if width is not None and width < self.agent.hidden_size:
            raise ValueError(
                f"cloning.hidden_size {width} is below agent.hidden_size {self.agent.hidden_size}: "
                "a network can be widened, not narrowed"
            )
        if self.cloning.prior is not None and self.agent.prior.kind != "linear_score":
            raise ValueError(
                f"cloning.prior {self.cloning.prior} needs agent.prior.kind linear_score, not "
                f"{self.agent.prior.kind}: set one of the two"
            )
        searches = {
            "polish_iterations": self.polish_iterations,
            "cloning.pieces": self.cloning.pieces,
        }
        for key, value in searches.items():
            if value and self.agent.network != "pointer":
                raise ValueError(
                    f"{key} {value} needs agent.network pointer, not {self.agent.network}: "
                    "set one of the two"
                )
        return self
