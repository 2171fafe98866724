"""Print named values one below the other, so that no number is ever cut off."""

from __future__ import annotations

from collections.abc import Mapping

from sched_env.evaluation.table import TextTable, format_amount, print_tables
from sched_env.metrics.summary import Cell


def print_row(title: str, row: Mapping[str, Cell]) -> None:
    """Print one flat row as a table of names and values."""
    rows = tuple((name, format_amount(value)) for name, value in row.items())
    print_tables([TextTable(title, ("", "value"), rows)])
