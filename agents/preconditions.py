"""What has to be right before a training run writes anything."""

from __future__ import annotations

from pathlib import Path

from sched_env.agents.conditions import condition_envs
from sched_env.agents.export import env_layout, policy_card
from sched_env.agents.prior_sources import prior_parameters, prior_score
from sched_env.config import ExperimentConfig
from sched_env.env.build import read_tables
from sched_env.errors import ConfigError, PolicyError
from sched_env.evaluation.entries import check_loads
from sched_env.policy.registry import resolve_policy


def check_parts(experiment: ExperimentConfig) -> None:
    """Refuse what would stop the run after its folder has been written.

    Raises:
        SchedEnvError: A trace, the prior, the network, a policy to compare with, a load or a
            condition.
    """
    read_tables(experiment.env)
    prior_parameters(experiment.agent.prior, env_layout(experiment.env))
    try:
        policy_card(experiment, num_decisions=0)
    except PolicyError as error:
        raise ConfigError(f"what this run learns could not be exported: {error}") from None
    if experiment.cloning.prior is not None:
        prior_score(experiment.cloning.prior)
    for policy in experiment.comparison.policies:
        resolve_policy(policy)
    check_loads(experiment.comparison.loads)
    try:
        condition_envs(experiment.env, experiment.conditions)
    except ConfigError as error:
        raise ConfigError(f"conditions: {error}") from None


def check_resume(path: Path, is_started: bool, resume: bool | str) -> None:
    """Refuse to go on with a run that is not there, and to begin one anew.

    Raises:
        ConfigError: ``resume`` asks for one of them.
    """
    if resume is True and not is_started:
        raise ConfigError(f"no run to go on with in {path}; start it without resume")
    if resume is False and is_started:
        raise ConfigError(f"{path} holds a run already; give another folder, or resume it")
