"""Errors of step-time models as text tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sched_env.cost.measured import PHASES
from sched_env.evaluation.table import TextTable


def error_rows(group: str, errors: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per phase; ``errors`` holds PhaseError fields by phase."""
    return [
        (
            group,
            phase,
            str(error["num_steps"]),
            f"{error['mape_pct']:.2f}",
            f"{error['p95_pct']:.2f}",
            f"{error['median_ratio']:.3f}",
        )
        for phase, error in errors.items()
    ]


def error_table(title: str, rows: Sequence[tuple[str, ...]]) -> TextTable:
    """Return the table of rows from `error_rows`; the ratio is that of model over measurement."""
    heads = ("group", "phase", "steps", "MAPE %", "P95 %", "median ratio")
    return TextTable(title, heads, tuple(rows))


def median_table(errors: Mapping[str, Mapping[str, Any]]) -> TextTable:
    """Return the median and the largest mean error over groups, by phase.

    ``errors`` holds what `error_rows` takes, by group.
    """
    rows: list[tuple[str, ...]] = []
    for phase in PHASES:
        found = [one[phase]["mape_pct"] for one in errors.values() if phase in one]
        if found:
            rows.append((phase, str(len(found)), f"{np.median(found):.2f}", f"{max(found):.2f}"))
    return TextTable("Over all groups", ("phase", "groups", "median %", "worst %"), tuple(rows))
