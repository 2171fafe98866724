"""The traffic that policies are compared on during training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from sched_env.agents.validation import EpisodeEvaluation, SplitSimulation, validation_episodes
from sched_env.config import ExperimentConfig


class Judge(Protocol):
    """Runs a policy on a fixed set of traffic."""

    def rows(self, policy: Any) -> list[dict[str, Any]]:
        """Return one row of metrics for each piece of traffic."""
        ...


@dataclass
class Judges:
    """The traffic that policies are compared on during training."""

    validation: Judge | None = None
    training: Judge | None = None
    baselines: tuple[str, ...] = field(default_factory=tuple)
    episodes: EpisodeEvaluation | None = None


def make_judges(experiment: ExperimentConfig) -> Judges:
    """Return the traffic of an experiment; none, where nothing is judged before the end.

    Raises:
        SchedEnvError: A part of a trace holds nothing to judge by.
    """
    if experiment.evaluate_every_decisions == 0 and experiment.agent.keep == "last":
        return Judges()
    return Judges(
        SplitSimulation(experiment, "validation"),
        SplitSimulation(experiment, "train"),
        experiment.comparison.policies,
        validation_episodes(experiment),
    )
