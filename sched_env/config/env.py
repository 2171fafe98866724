"""The environment: a trace, a server, its clients, and what an agent sees and is paid for."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pydantic

from sched_env.config.cost import DEFAULT_PRESET, ServerCost, TwoRegimeCost
from sched_env.config.model import (
    ONE_OR_BOTH,
    RISING,
    ConfigModel,
    CountOrZero,
    Flag,
    NonNegative,
    Positive,
    SlotCount,
    Text,
)
from sched_env.config.scheduler import SchedulerConfig
from sched_env.config.service import ServiceConfig

Split = Literal["train", "validation", "test", "all"]
"""Part of a trace by time: 0-60 %, 60-70 %, 70-100 %, or the whole."""


OWN_RATE = "own"
"""What stands for the trace's own arrival rate where a command takes a load."""

Screen = Literal["weighted_sjf", "fcfs"]
"""Order in which waiting requests come into the slots that are shown."""


def _to_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Range = Annotated[tuple[Positive, Positive], ONE_OR_BOTH, RISING]
"""A lowest and a highest value; one number stands for both."""

Names = Annotated[
    tuple[Text, ...], pydantic.Field(min_length=1), pydantic.BeforeValidator(_to_tuple)
]
"""One name or a list of names."""


class ObservationConfig(ConfigModel):
    """What the agent sees."""

    num_waiting_slots: SlotCount = 24
    """Waiting requests shown one by one; those beyond are summed up in the global features."""

    num_running_slots: SlotCount = 8
    """Running requests shown as candidates for preemption."""

    screen: Screen = "weighted_sjf"
    """Which waiting requests are shown first."""

    privileged: Flag = False
    """Append columns with the future, for a value head in training; evaluation refuses them."""


class RewardConfig(ConfigModel):
    """Weights of the reward terms; 0 leaves a term out."""

    goodput: NonNegative = 0.5
    """Paid for a request that finishes within its SLOs, times its weight."""

    miss: NonNegative = 0.5
    """Taken once for a request that misses an SLO, times its weight."""

    waiting: NonNegative = 0.0
    """Taken per second and waiting request, times its weight [1/s]."""

    recompute: NonNegative = 0.0
    """Taken per 1,000 tokens that a preemption throws away."""


class EpisodeConfig(ConfigModel):
    """How a piece of the trace becomes one episode."""

    horizon_s: Positive = 60.0
    """Simulated time after which an episode is truncated [s]."""

    load: Range | None = (0.7, 1.5)
    """Arrival rate over what fcfs can drain, drawn per episode; null: the trace's own rate."""

    discount_time_s: Positive = 8.0
    """A reward dt seconds ahead counts exp(-dt / discount_time_s) [s]."""

    warmup_s: NonNegative = 0.0
    """Time simulated under fcfs before the first observation [s]."""

    jump_ahead: Flag = True
    """Run iterations without a decision in one jump; the results are the same either way."""

    invalid_action: Literal["replace", "raise"] = "replace"
    """What an illegal action does: counted and replaced by a legal one, or an error."""

    max_requests: CountOrZero = 0
    """Requests in one episode at most; 0: as many as arrive within the horizon."""


class EnvConfig(ConfigModel):
    """Everything that decides an episode besides its seed."""

    config_kind: ClassVar[str | None] = "env"

    trace: Names = ("azure_conv",)
    """Trace files or embedded workloads; with several, each episode draws one."""

    split: Split = "train"
    """Which part of each trace is used."""

    scheduler: SchedulerConfig = SchedulerConfig()
    """Budgets and rules of the server."""

    cost: ServerCost = TwoRegimeCost(preset=DEFAULT_PRESET)
    """How long an iteration takes."""

    service: ServiceConfig = ServiceConfig()
    """Service classes and SLOs."""

    observation: ObservationConfig = ObservationConfig()
    """What the agent sees."""

    reward: RewardConfig = RewardConfig()
    """What the agent is paid for."""

    episode: EpisodeConfig = EpisodeConfig()
    """How long an episode is and how heavy its load."""
