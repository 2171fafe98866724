"""What has to be right before a training run writes anything."""

from __future__ import annotations

from pathlib import Path

from sched_env.agents.conditions import condition_envs
from sched_env.agents.export import env_layout, policy_card
from sched_env.agents.prior_sources import prior_parameters, prior_score
from sched_env.agents.run_folder import RunFolder
from sched_env.agents.score_search.scenarios import ScenarioSource
from sched_env.config import ExperimentConfig
from sched_env.env.build import read_tables
from sched_env.errors import ConfigError, PolicyError
from sched_env.evaluation.entries import check_loads
from sched_env.policy.format import WEIGHTS_FILE, refuse_other_folder
from sched_env.policy.registry import resolve_policy

_MOST_SEED = 2**32 - 1
"""Stable-Baselines3 seeds NumPy's global generator, which takes no more."""


def check_parts(experiment: ExperimentConfig) -> None:
    """Refuse what would stop the run after its folder has been written.

    Raises:
        SchedEnvError: A trace, the prior, the network, a policy to compare with, a load or a
            condition.
    """
    if experiment.seed > _MOST_SEED:
        raise ConfigError(
            f"seed {experiment.seed} is not allowed: a training takes a whole number from 0 to "
            f"{_MOST_SEED}"
        )
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
    _check_refinement(experiment)


def _check_refinement(experiment: ExperimentConfig) -> None:
    """Refuse what would stop the searches and the cloning, hours after PPO began.

    Raises:
        TraceError: A split has too few requests.
        ConfigError: A stretch, a load or a KV factor is not possible on a trace.
    """
    env, cloning = experiment.env, experiment.cloning
    if not (experiment.polish_iterations or cloning.pieces):
        return
    for split in ("train", "validation"):
        ScenarioSource(env, experiment.tuning, split)
    if cloning.pieces:
        kv_factors = experiment.conditions.kv_factors
        taught = experiment.tuning.replace(kv_factors=kv_factors, stretches=cloning.stretches)
        ScenarioSource(env, taught, "train")


def check_pieces(experiment: ExperimentConfig) -> None:
    """Refuse pieces to clone from that no trace is long enough for.

    Only where a run begins: one that goes on has taken what there is.

    Raises:
        ConfigError: They are longer than every train part.
    """
    env, cloning = experiment.env, experiment.cloning
    if not cloning.pieces or cloning.requests_per_piece is None:
        return
    longest = max(len(table) for table in read_tables(env.replace(split="train")))
    if cloning.requests_per_piece > longest:
        raise ConfigError(
            f"cloning.requests_per_piece {cloning.requests_per_piece} is more than the {longest} "
            "requests of the longest train part; lower it, or give a longer trace"
        )


def check_place(folder: RunFolder, is_started: bool) -> None:
    """Refuse a folder in which a run would overwrite, or go on from, what is not its own.

    Raises:
        ConfigError: It is a policy, or holds checkpoints and no configuration.
        PolicyError: Something else lies where its policy goes.
    """
    if (folder.path / WEIGHTS_FILE).is_file():
        raise ConfigError(f"{folder.path} is the folder of a policy; give another folder")
    if not is_started and folder.checkpoints.is_dir() and any(folder.checkpoints.iterdir()):
        raise ConfigError(
            f"{folder.path} holds checkpoints but no {folder.config_file.name}, which tells what "
            "they belong to: restore it, or give another folder"
        )
    refuse_other_folder(
        folder.policy, "the run's own policy goes there, so move it away, or give another --run-dir"
    )


def check_resume(path: Path, is_started: bool, resume: bool | str) -> None:
    """Refuse to go on with a run that is not there, and to begin one anew.

    Raises:
        ConfigError: ``resume`` asks for one of them.
    """
    if resume is True and not is_started:
        raise ConfigError(f"no run to go on with in {path}; start it without resume")
    if resume is False and is_started:
        raise ConfigError(f"{path} holds a run already; give another folder, or resume it")
