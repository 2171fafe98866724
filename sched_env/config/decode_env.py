"""The teaching environment: a small workload, a pool of blocks, and what is paid."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import pydantic

from sched_env.config.model import (
    ONE_OR_BOTH,
    RISING,
    ConfigModel,
    Count,
    CountOrZero,
    Flag,
    Fraction,
    NonNegative,
    Positive,
    Share,
    Whole,
)

CountRange = Annotated[tuple[Count, Count], ONE_OR_BOTH, RISING]
"""A lowest and a highest number of things; one number stands for both."""

CountOrZeroRange = Annotated[tuple[CountOrZero, CountOrZero], ONE_OR_BOTH, RISING]
"""The same, with zero allowed."""

WholeRange = Annotated[tuple[Whole, Whole], ONE_OR_BOTH, RISING]
"""A lowest and a highest whole number."""

_Factor = Annotated[Positive, pydantic.Field(le=1e6)]

FactorRange = Annotated[tuple[_Factor, _Factor], ONE_OR_BOTH, RISING]
"""A lowest and a highest factor, up to a million: deadlines stay whole numbers of steps."""


class DecodeWorkloadConfig(ConfigModel):
    """How the requests of an episode are drawn; a range is drawn from evenly."""

    num_requests: CountRange = (4, 6)
    """Requests of an episode."""

    arrival_gap_steps: CountOrZeroRange = (0, 4)
    """Steps between two arrivals; the first request arrives at step 0."""

    prompt_len: CountRange = (1, 16)
    """Prompt tokens; a prefill takes one step whatever its length."""

    max_new_tokens: CountRange = (1, 6)
    """Output tokens, one step each."""

    priority: WholeRange = (0, 3)
    """Larger is more important; a request counts 1 + priority, and 1 where that is negative."""

    required_blocks: CountRange = (1, 4)
    """KV blocks held from admission to the end, or until preempted."""

    cache_hit: Fraction = 0.3
    """Share of requests whose prefix is cached."""

    preemptible: Fraction = 0.8
    """Share of requests that may be preempted."""

    deadline: Fraction = 0.8
    """Share of requests with a deadline."""

    deadline_factor: FactorRange = (1.0, 4.0)
    """Deadline after arrival, over the steps that the request needs alone."""


class DecodeRequestConfig(ConfigModel):
    """One request of a given instance."""

    request_id: Whole
    """A number that no other request has; the smaller one breaks ties."""

    prompt_len: Count
    """Prompt tokens."""

    max_new_tokens: Count = 2
    """Output tokens, one step each."""

    priority: Whole = 0
    """Larger is more important."""

    cache_hit: Flag = False
    """Whether its prefix is cached."""

    required_blocks: Count = 1
    """KV blocks held while admitted."""

    deadline_step: Count | None = None
    """Clock by which it should be done; null: no deadline."""

    preemptible: Flag = True
    """Whether it may be preempted."""

    arrival_step: CountOrZero = 0
    """Clock at which it arrives."""

    @pydantic.model_validator(mode="after")
    def _check_deadline(self) -> Self:
        if self.deadline_step is not None and self.deadline_step <= self.arrival_step:
            raise ValueError(
                f"deadline_step {self.deadline_step} is not after arrival_step "
                f"{self.arrival_step}; give a later step or null"
            )
        return self


class DecodeRewardConfig(ConfigModel):
    """Weights of the reward terms; a request counts its share of the episode's whole weight."""

    goodput: NonNegative = 0.5
    """Paid for a request that is done by its deadline, or has none, times its share."""

    miss: NonNegative = 0.5
    """Taken once, when a deadline can no longer be met, times its share."""

    latency: NonNegative = 0.02
    """Taken per step and request that has arrived and is not done, times its share [1/step]."""

    preemption: NonNegative = 0.0
    """Taken per preemption."""


class DecodeEpisodeConfig(ConfigModel):
    """How rewards count over time, and what an illegal action does."""

    discount: Share = 1.0
    """A reward one step ahead counts this much."""

    invalid_action: Literal["replace", "raise"] = "replace"
    """What an illegal action does: counted and replaced by a legal one, or an error."""


class DecodeSchedulingConfig(ConfigModel):
    """Everything that decides an episode of the teaching environment besides its seed."""

    config_kind: ClassVar[str | None] = "env"

    free_kv_blocks: Count = 6
    """KV blocks, all free at the start."""

    aging_interval: Count = 4
    """Steps of waiting that are worth one level of priority, under the aging policy."""

    num_slots: Count = 6
    """Requests shown: admitted ones, then by arrival."""

    workload: DecodeWorkloadConfig = DecodeWorkloadConfig()
    """What is drawn for each episode."""

    requests: tuple[DecodeRequestConfig, ...] | None = None
    """A given instance, the same in every episode, in place of a drawn one."""

    reward: DecodeRewardConfig = DecodeRewardConfig()
    """What the agent is paid for."""

    episode: DecodeEpisodeConfig = DecodeEpisodeConfig()
    """Discount and illegal actions."""

    @pydantic.model_validator(mode="after")
    def _check_blocks(self) -> Self:
        if self.requests is None:
            most, where = self.workload.required_blocks[1], "workload.required_blocks"
        else:
            most = max((one.required_blocks for one in self.requests), default=0)
            where = "required_blocks of a request"
        if most > self.free_kv_blocks:
            raise ValueError(
                f"{where} goes up to {most}, which {self.free_kv_blocks} free_kv_blocks can never "
                "hold; raise free_kv_blocks or lower it"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _check_requests(self) -> Self:
        if self.requests is None:
            return self
        if not self.requests:
            raise ValueError("requests is empty; give at least one, or null to draw them")
        ids = [one.request_id for one in self.requests]
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            raise ValueError(f"request_id {twice[0]} is given twice; give each request its own")
        return self
