"""The folder of one training run: what it holds, and when it may be continued.

::

    runs/<experiment>/<agent>__seed<k>__<utc>/
        config.yaml          the resolved configuration
        environment.json     versions and machine
        inputs.json          hashes of the traces, step times and linear scores that it names
        events.out.tfevents* TensorBoard; baselines/<name>/ those of policies to compare with
        progress.csv         one row an update
        polish.csv           one row a look of the search after PPO, if there was one
        second_polish.csv    the same of the search just before the cloning
        teachers.csv         one row a condition: who taught the policy at the end, if anybody did
        checkpoints/         the newest states to continue from
        policy/              the exported policy
        summary.json         what came out; its presence says that the run is complete
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sched_env.agents.inputs import input_hashes
from sched_env.config import ExperimentConfig, to_yaml
from sched_env.config.differences import describe_differences
from sched_env.config.yaml_text import read_yaml_mapping
from sched_env.errors import ConfigError
from sched_env.evaluation.files import (
    read_json_mapping,
    remove_leftovers,
    write_json,
    write_text,
)
from sched_env.evaluation.folder_lock import lock_folder
from sched_env.evaluation.machine import describe_machine
from sched_env.policy.format import remove_staging


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder."""

    path: Path

    @property
    def config_file(self) -> Path:
        """Return the path of the resolved configuration."""
        return self.path / "config.yaml"

    @property
    def environment_file(self) -> Path:
        """Return the path of the versions and the machine."""
        return self.path / "environment.json"

    @property
    def inputs_file(self) -> Path:
        """Return the path of the hashes of what the run began with."""
        return self.path / "inputs.json"

    @property
    def progress_file(self) -> Path:
        """Return the path of the table with one row an update."""
        return self.path / "progress.csv"

    @property
    def polish_file(self) -> Path:
        """Return the path of the table with one row a look of the search that ended it."""
        return self.path / "polish.csv"

    @property
    def second_polish_file(self) -> Path:
        """Return the path of the same table of the search just before the cloning."""
        return self.path / "second_polish.csv"

    @property
    def teachers_file(self) -> Path:
        """Return the path of the table with one row a condition: who taught the policy there."""
        return self.path / "teachers.csv"

    @property
    def checkpoints(self) -> Path:
        """Return the folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def baselines(self) -> Path:
        """Return the folder with one TensorBoard run for each policy to compare with."""
        return self.path / "baselines"

    @property
    def policy(self) -> Path:
        """Return the folder of the exported policy."""
        return self.path / "policy"

    @property
    def summary_file(self) -> Path:
        """Return the path of the summary, written last."""
        return self.path / "summary.json"

    @contextmanager
    def held(self) -> Generator[None]:
        """Keep other training runs out of the folder, whose configuration is there.

        What a run that was killed here left half written is removed.

        Raises:
            SchedEnvError: Another one writes to it.
        """
        with self.config_file.open("r+b") as file:
            lock_folder(file, self.path, "another training run")
            remove_leftovers(self.path)
            remove_staging(self.policy)
            yield

    def read_config(self) -> ExperimentConfig:
        """Return the configuration the run was started with.

        Raises:
            ConfigError: The folder holds none, or a damaged one.
        """
        if not self.config_file.is_file():
            raise ConfigError(
                f"{self.path} is no run folder: it has no config.yaml. Give the folder that "
                "sched-env train wrote"
            )
        values = read_yaml_mapping(self.config_file)
        return ExperimentConfig.from_mapping(values, source=str(self.config_file))

    def read_summary(self) -> dict[str, Any] | None:
        """Return the summary of a complete run, or None.

        Raises:
            ConfigError: It is damaged.
        """
        if not self.summary_file.is_file():
            return None
        remedy = "remove it, and the same command ends the training again"
        summary = read_json_mapping(self.summary_file, remedy)
        if not isinstance(summary.get("num_decisions"), int):
            raise ConfigError(
                f"{self.summary_file} is damaged (num_decisions is no whole number); {remedy}"
            )
        return summary


def default_run_path(experiment: ExperimentConfig, root: Path = Path("runs")) -> Path:
    """Return a new folder's path for ``experiment``, named by agent, seed and UTC time."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    agent = f"{experiment.agent.algorithm}_{experiment.agent.network}"
    return root / experiment.name / f"{agent}__seed{experiment.seed}__{stamp}"


def open_run_folder(path: Path, experiment: ExperimentConfig) -> RunFolder:
    """Create the folder, or accept the one that was started with the same configuration.

    Raises:
        ConfigError: The folder was started with another configuration, or is a file.
        SchedEnvError: A trace, step times or a prior cannot be read.
    """
    folder = RunFolder(Path(path))
    if folder.path.exists() and not folder.path.is_dir():
        raise ConfigError(f"run folder {folder.path} is a file; give a folder")
    if folder.config_file.exists():
        _check_same(folder, experiment)
        return folder
    hashes = input_hashes(experiment)
    try:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(folder.environment_file, describe_machine())
        write_json(folder.inputs_file, hashes)
        write_text(folder.config_file, to_yaml(experiment))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"run folder {folder.path} cannot be made or written to ({reason}); give another "
            "folder to --run-dir"
        ) from None
    return folder


def refuse_changed_inputs(folder: RunFolder, hashes: Mapping[str, str]) -> None:
    """Refuse to go on with a run from something else than it began with.

    Runs that began before their folder held the hashes are taken as they are.

    Args:
        folder: Of the run.
        hashes: Of what is there now, some of ``input_hashes``.

    Raises:
        ConfigError: Something has changed since, or the file of the hashes is damaged.
    """
    if not folder.inputs_file.is_file():
        return
    there = read_json_mapping(folder.inputs_file)
    for key, digest in hashes.items():
        if there.get(key) != digest:
            raise ConfigError(
                f"{key} is not what it was when the run in {folder.path} began (its sha256 "
                "differs): restore it, or give another folder to begin anew"
            )


def _check_same(folder: RunFolder, experiment: ExperimentConfig) -> None:
    try:
        there = folder.read_config()
    except ConfigError as error:
        raise ConfigError(
            f"run folder {folder.path} does not hold a training run's configuration: give another "
            f"folder, or restore it ({error})"
        ) from None
    differences = describe_differences(there.to_dict(), experiment.to_dict())
    if differences:
        raise ConfigError(
            f"run folder {folder.path} belongs to another configuration: {differences}. Give "
            "another folder, or the same configuration to continue"
        )
