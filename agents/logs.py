"""Where a training run writes its curves: TensorBoard events and ``progress.csv``.

Both survive an interruption: rows and events past the checkpoint that a run continues from are
dropped, so no step appears twice.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter

from sched_env.agents.run_folder import RunFolder
from sched_env.config.label import is_label
from sched_env.evaluation.files import write_text
from sched_env.policy.registry import resolve_policy

STEP_COLUMN = "time/total_timesteps"
NOT_TABULAR = ("stdout", "log", "json", "csv")
"""Formats that cannot hold texts, figures and hyperparameters."""


class ProgressTable(KVWriter):
    """A CSV file with one row an update, whose columns may grow, and which can be continued."""

    def __init__(self, path: Path, *, continue_from: int = 0) -> None:
        """Open ``path``, keeping the rows up to ``continue_from`` decisions."""
        self.path = path
        self.rows: list[dict[str, str]] = []
        if path.is_file() and continue_from > 0:
            with path.open(newline="", encoding="utf-8") as file:
                self.rows = [row for row in csv.DictReader(file) if _step(row) <= continue_from]
        self.columns = list(self.rows[0]) if self.rows else []
        self._rewrite()

    def write(
        self,
        key_values: dict[str, Any],
        key_excluded: dict[str, tuple[str, ...]],
        step: int = 0,
    ) -> None:
        """Add values to the row of ``step``, the number of decisions."""
        row = {STEP_COLUMN: str(step)}
        for key, value in key_values.items():
            if "csv" not in (key_excluded.get(key) or ()):
                row[key] = str(float(value) if isinstance(value, np.generic) else value)
        if len(row) == 1:
            return
        if self.rows and self.rows[-1][STEP_COLUMN] == row[STEP_COLUMN]:
            row = self.rows.pop() | row
        self.rows.append(row)
        added = {*row} - {*self.columns}
        if added:
            self.columns = [STEP_COLUMN, *sorted({*self.columns, *added} - {STEP_COLUMN})]
        self._rewrite()

    def _rewrite(self) -> None:
        if not self.columns:
            write_text(self.path, "")
            return
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue())

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def _step(row: Mapping[str, str]) -> float:
    try:
        return float(row.get(STEP_COLUMN) or "inf")
    except ValueError:
        return float("inf")


class ContinuedTensorBoard(TensorBoardOutputFormat):
    """stable-baselines3's TensorBoard writer, able to drop what came after a checkpoint."""

    def __init__(self, folder: Path, *, continue_from: int = 0) -> None:
        """Write to ``folder``; events after ``continue_from`` decisions no longer show."""
        purge = continue_from + 1 if continue_from > 0 else None
        if purge is None:
            remove_events(folder)
        self.writer = SummaryWriter(log_dir=str(folder), purge_step=purge)
        self._is_closed = False


def make_logger(folder: RunFolder, *, continue_from: int = 0) -> Logger:
    """Return a logger that writes TensorBoard events and progress.csv of a run."""
    formats: list[KVWriter] = [
        ContinuedTensorBoard(folder.path, continue_from=continue_from),
        ProgressTable(folder.progress_file, continue_from=continue_from),
    ]
    return Logger(str(folder.path), formats)


def remove_events(folder: Path) -> None:
    """Remove the TensorBoard events right in ``folder``: what they tell starts anew."""
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()


def level_line_names(policies: Sequence[str]) -> list[str]:
    """Return a folder's name for each policy: the policy's own, or ``policy_<number>``.

    A policy may be given by a path, or by a name that another has too: neither becomes a path here.

    Raises:
        SchedEnvError: There is no such policy.
    """
    numbered = [f"policy_{index}" for index in range(len(policies))]
    names: list[str] = []
    for policy, number in zip(policies, numbered, strict=True):
        name = resolve_policy(policy).name
        is_free = name not in (*names, *numbered)
        names.append(name if is_free and is_label(name) else number)
    return names


def write_level_line(folder: Path, metrics: Mapping[str, float], last_step: int) -> None:
    """Write ``metrics`` as level lines from step 0 to ``last_step``: a TensorBoard run of its own.

    Run and line carry the tags of the training run, so both show in the same charts.
    """
    remove_events(folder)
    writer = SummaryWriter(log_dir=str(folder))
    for step in (0, last_step):
        for tag, value in metrics.items():
            if np.isfinite(value):
                writer.add_scalar(tag, value, step)
    writer.close()
