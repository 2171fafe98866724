"""Train an agent and export its policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sched_env.cli.idle_overrides import Key, refuse_idle
from sched_env.cli.main import Command
from sched_env.cli.optional import importing_extra
from sched_env.config import ExperimentConfig, load_config
from sched_env.config.experiment import CloningConfig


@dataclass(frozen=True)
class TrainArguments:
    """Train an agent and export its policy.

    Give the run folder of an interrupted training to --run-dir, and it goes on from its newest
    checkpoint.
    """

    config: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CONFIG")]
    """Experiment: a name such as experiment/azure_conv, or a YAML file."""

    overrides: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[KEY=VALUE ...]")
    ] = ()
    """Changes of single values, such as env.scheduler.num_blocks=2000."""

    trace: Annotated[str | None, tyro.conf.arg(metavar="FILE|NAME,...")] = None
    """Train on these traces instead of those of the configuration."""

    seed: int | None = None
    """Seed of the run."""

    total_decisions: int | None = None
    """Decisions of the agent."""

    run_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run; by default a new one under runs/."""


def run(arguments: TrainArguments) -> None:
    """Train, and say where the policy and the TensorBoard events are."""
    experiment = experiment_of(arguments)
    with importing_extra("agents"):
        from sched_env.agents.run_folder import default_run_path
        from sched_env.agents.train import PPO, TrainProgress, train
    from sched_env.cli.train_progress import StageBars, cloning_line, describe

    place = Path(arguments.run_dir) if arguments.run_dir else default_run_path(experiment)
    is_open = False
    try:
        with StageBars() as bars:

            def tell(folder: Path) -> None:
                nonlocal is_open
                is_open = True
                print(f"run: {folder}", flush=True)

            def show(now: TrainProgress) -> None:
                is_ppo = now.stage == PPO
                speed = now.decisions_per_s if is_ppo else None
                bars.update(now.stage, now.share_done, describe(speed, now.metrics))

            result = train(experiment, place, opened=tell, progress=show)
    except KeyboardInterrupt:
        if is_open:
            sys.stderr.write(f"to go on from the newest checkpoint: --run-dir {place}\n")
        raise
    if result.was_complete:
        print(f"{place} holds the complete run already: nothing was trained")
    if cloning := result.summary.get("cloning"):
        print(cloning_line(**cloning))
    print(f"policy: {result.policy_dir}")
    print(f"TensorBoard: tensorboard --logdir {result.run_dir}")


def experiment_of(arguments: TrainArguments) -> ExperimentConfig:
    """Return the configuration with the options laid over it; they win over overrides.

    Raises:
        SchedEnvError: There is no such configuration, or a value is wrong or would change nothing.
    """
    experiment = load_config(ExperimentConfig, arguments.config, arguments.overrides)
    refuse_idle(arguments.overrides, _idle_in(experiment))
    changes: dict[str, object] = {}
    if arguments.trace is not None:
        traces = tuple(name.strip() for name in arguments.trace.split(","))
        changes["env"] = experiment.env.replace(trace=traces)
    if arguments.seed is not None:
        changes["seed"] = arguments.seed
    if arguments.total_decisions is not None:
        changes["total_decisions"] = arguments.total_decisions
    return experiment.replace(**changes) if changes else experiment


def _idle_in(experiment: ExperimentConfig) -> dict[Key, str]:
    """Return the keys without a say in a training, and why."""
    idle: dict[Key, str] = {}
    if not experiment.cloning.pieces:
        why = "cloning.pieces is 0, so nothing is cloned"
        idle |= {("cloning", key): why for key in CloningConfig.model_fields if key != "pieces"}
        if not experiment.polish_iterations:
            idle["tuning",] = "no search and no cloning follow: give polish_iterations"
    if not experiment.is_searched:
        idle["polish_step_size",] = "nothing is polished: give polish_iterations"
    return idle


def shown_config(positionals: Sequence[str], _options: dict[str, str]) -> ExperimentConfig:
    """Return the experiment whose values ``--help`` shows: CONFIG, or else the demo."""
    name, *overrides = positionals or ["experiment/demo"]
    return load_config(ExperimentConfig, name, overrides)


COMMAND = Command(TrainArguments, run, shown_config)
