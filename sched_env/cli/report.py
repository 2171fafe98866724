"""Show what came out of a training run or an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from sched_env.cli.main import Command
from sched_env.errors import ConfigError


@dataclass(frozen=True)
class ReportArguments:
    """Show what came out of a training run or an evaluation.

    With an evaluation's results in the folder it prints their tables and writes report.md beside
    them, with a chart where matplotlib is installed. With an arena's it says where their report is.
    """

    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run folder, or the folder that was given to evaluate --out."""


def run(arguments: ReportArguments) -> None:
    """Print what the folder holds and write the report of its evaluation."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}; give a run folder or one given to evaluate --out")
    from sched_env.errors import SchedEnvError
    from sched_env.evaluation.folders import ARENA, holds
    from sched_env.evaluation.report import find_results, report

    if holds(folder, ARENA):
        print(f"report: {folder / 'arena.md'}")
        return
    _refuse_single_runs(folder)
    was_trained = _print_training(folder)
    try:
        found = find_results(folder)
    except SchedEnvError:
        if was_trained:
            print(
                f"no comparison yet: run sched-env evaluate --policies fcfs,{folder} "
                f"--out {folder / 'evaluation'}"
            )
            return
        raise
    from sched_env.evaluation.compare import compare
    from sched_env.evaluation.results import read_rows
    from sched_env.evaluation.table import print_tables, result_tables

    rows = read_rows(found)
    print_tables(result_tables(rows, compare(rows)))
    files = report(found)
    print(f"\nreport: {files.page}")
    if files.plot is not None:
        print(f"chart: {files.plot}")


def _refuse_single_runs(folder: Path) -> None:
    """Refuse a folder of one run under one policy, whose files say all there is.

    Raises:
        ConfigError: It is one.
    """
    from sched_env.evaluation.folders import REPLAY, SIMULATION, holds

    for kind, file in ((SIMULATION, "summary.json"), (REPLAY, "replay.json")):
        if holds(folder, kind):
            raise ConfigError(
                f"{folder} holds the results of {kind}, not of a training run or an evaluation: "
                f"see {folder / file}"
            )


def _print_training(folder: Path) -> bool:
    """Print a training run's summary; return whether the folder is one that was finished."""
    summary_file = folder / "summary.json"
    if not any((folder / part).is_dir() for part in ("checkpoints", "policy")):
        return False
    if not summary_file.is_file():
        print(f"{folder}: training is not finished; start it again with --run-dir {folder}")
        return True
    from sched_env.cli.tables import print_row
    from sched_env.evaluation.files import read_json_mapping

    summary = read_json_mapping(summary_file)
    print_row(f"Training run {folder.name}", dict(_flat(summary)))
    from sched_env.evaluation.curve_plot import plot_curves
    from sched_env.evaluation.plots import can_plot

    if can_plot() and summary.get("validation"):
        plot_curves([folder], folder / "curves.png")
        print(f"learning curves: {folder / 'curves.png'}")
    return True


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            flat += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float | str) or value is None:
            flat.append((f"{prefix}{key}", value))
    return flat


COMMAND = Command(ReportArguments, run)
