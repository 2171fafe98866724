"""How a linear score is tuned by evolution."""

from __future__ import annotations

from typing import Annotated

import pydantic

from sched_env.config.model import ConfigModel, Count, Positive, SloFactor, SlotCount

StepSize = Annotated[Positive, pydantic.Field(le=1000)]
"""A standard deviation of a search; weights beyond it would soon leave what float32 can hold."""


class StretchConfig(ConfigModel):
    """Requests of other lengths than a trace has, made from it."""

    prompt: Positive = 1.0
    """Multiple of each prompt's length."""

    output: Positive = 1.0
    """Multiple of each output's length."""

    @property
    def is_stretch(self) -> bool:
        """Tell whether it changes any length."""
        return (self.prompt, self.output) != (1.0, 1.0)


class TuningConfig(ConfigModel):
    """One search for the weights of a linear score, or of a trained policy.

    A candidate's worth is its mean weighted goodput over scenarios: pieces of the training split,
    each at a load, an SLO tightness and a KV pool. All candidates of an iteration meet the same
    scenarios; each iteration draws new ones.
    """

    iterations: Count = 60
    """Generations of the evolution strategy."""

    population: Annotated[Count, pydantic.Field(ge=4)] = 20
    """Candidates of one generation."""

    scenarios: Count = 20
    """Scenarios that each candidate is run on."""

    requests_per_scenario: Annotated[Count, pydantic.Field(ge=2)] = 300
    """Requests of one scenario; all of a part of a trace that has fewer."""

    loads: tuple[Positive, ...] = pydantic.Field(default=(0.7, 0.9, 1.1, 1.3, 1.5), min_length=1)
    """Arrival rates over what fcfs can drain, drawn per scenario."""

    slo_factors: tuple[SloFactor, ...] = pydantic.Field(default=(1.0, 0.7), min_length=1)
    """Multiples of the environment's SLO factor, drawn per scenario."""

    kv_factors: tuple[Positive, ...] = pydantic.Field(default=(1.0,), min_length=1)
    """Multiples of the environment's num_blocks, drawn per scenario."""

    stretches: tuple[StretchConfig, ...] = pydantic.Field(default=(StretchConfig(),), min_length=1)
    """Multiples of the traces' lengths, drawn per scenario."""

    num_waiting_slots: SlotCount | None = None
    """Waiting requests that candidates are shown; null: as many as the environment shows, or as the
    policy that the search goes on from was shown."""

    num_running_slots: SlotCount | None = None
    """Running requests that they are shown, the newest of the batch; null likewise."""

    step_size: StepSize = 0.1
    """First standard deviation of the search, in units of each weight's own scale."""

    validate_every: Count = 5
    """Generations between two looks at the validation split."""

    validation_scenarios: Count = 96
    """Scenarios of the validation split, the same at every look; the best mean is kept."""
