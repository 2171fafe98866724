"""Results as text tables that never cut a number off.

A table too wide for the terminal is stacked: its columns are split into several tables that each
repeat the name of the policy. Where the output is no terminal the tables are plain ASCII.
"""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sched_env.evaluation.compare import Comparison, Versus
from sched_env.evaluation.statistics import Interval
from sched_env.metrics.summary import Cell, Row

WIDTH = 80
"""Columns of a terminal whose width is not known."""

MISSING = "-"
"""What an undefined value looks like."""

_COLUMN_GAP = 2
_MAX_LABEL = 18  # a longer name is folded where the table would not fit otherwise
_PLAIN_BOX = rich.box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


@dataclass(frozen=True)
class TextTable:
    """A table as texts, the first column naming the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def format_number(value: Cell) -> str:
    """Return a share with 4 decimals, a count in full, and a dash for what is undefined."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def format_amount(value: Cell) -> str:
    """Return a number with at most four significant digits, but never fewer than its integer."""
    if value is None or isinstance(value, str) or math.isnan(value):
        return MISSING if not isinstance(value, str) else value
    if math.isinf(value):
        return str(value)
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{min(digits, 3)}f}" if isinstance(value, float) else str(value)


def format_interval(interval: Interval, *, signed: bool = False) -> str:
    """Return ``mean [low, high]`` with 4 decimals; one value has no interval."""
    sign = "+" if signed else ""
    if math.isnan(interval.mean):
        return MISSING
    if math.isnan(interval.low):
        return f"{interval.mean:{sign}.4f} [one value]"
    return f"{interval.mean:{sign}.4f} [{interval.low:{sign}.4f}, {interval.high:{sign}.4f}]"


def comparison_table(comparison: Comparison) -> TextTable:
    """Return the main table: each policy's metric and its difference to the best heuristic.

    Without a heuristic there is nothing to differ from, and the metric stands alone.
    """
    best = comparison.best_heuristic
    level = f"{100 * comparison.confidence:g} %"
    title, heads = f"{comparison.metric}: mean over cells", ("policy", f"mean [{level}]")
    if best is None:
        means = ((one.policy, format_interval(one.mean)) for one in comparison.policies)
        return TextTable(title, heads, tuple(means))
    rows = [
        (
            one.policy,
            format_interval(one.mean),
            _difference(one.versus_best, is_best=one.policy == best),
            _record(one.versus_best),
        )
        for one in comparison.policies
    ]
    return TextTable(
        f"{title}, and paired difference to the best heuristic",
        (*heads, f"to {best} [{level}]", "better"),
        tuple(rows),
    )


def condition_tables(comparison: Comparison) -> list[TextTable]:
    """Return the metric of each policy at each load, mean over seeds, a table for each trace."""
    means = {(one.policy, one.trace, one.load): one.mean.mean for one in comparison.conditions}
    tables = []
    for trace in dict.fromkeys(one.trace for one in comparison.conditions):
        here = [one.load for one in comparison.conditions if one.trace == trace]
        loads = list(dict.fromkeys(here))
        rows = [
            (
                one.policy,
                *(format_number(means.get((one.policy, trace, load), math.nan)) for load in loads),
            )
            for one in comparison.policies
        ]
        heads = ("own rate" if load is None else f"load {load:g}" for load in loads)
        title = f"{comparison.metric} on {trace}, mean over seeds"
        tables.append(TextTable(title, ("policy", *heads), tuple(rows)))
    return tables


def metric_table(title: str, rows: Sequence[Row], metrics: dict[str, str]) -> TextTable:
    """Return the mean over cells of some metrics for each policy.

    Args:
        title: Title of the table.
        rows: Flat rows.
        metrics: Key of a metric to the head of its column; a key absent from all rows is skipped.
    """
    shown = {key: head for key, head in metrics.items() if any(key in row for row in rows)}
    policies = dict.fromkeys(str(row["policy"]) for row in rows)
    lines = []
    for policy in policies:
        own = [row for row in rows if row["policy"] == policy]
        lines.append((policy, *(_format_mean(key, [row.get(key) for row in own]) for key in shown)))
    return TextTable(title, ("policy", *shown.values()), tuple(lines))


LATENCY_COLUMNS = {
    "p50_ttft_ms": "TTFT p50",
    "p99_ttft_ms": "TTFT p99",
    "p50_tpot_ms": "TPOT p50",
    "p99_tpot_ms": "TPOT p99",
    "p99_itl_ms": "ITL p99",
    "p50_e2el_ms": "E2EL p50",
    "p99_e2el_ms": "E2EL p99",
    "p95_queue_wait_ms": "wait p95",
    "max_queue_wait_ms": "wait max",
}
OUTCOME_COLUMNS = {
    "slo_attainment": "attained",
    "num_injected": "injected",
    "num_finished": "finished",
    "num_rejected": "rejected",
    "num_timed_out": "timed out",
    "num_unfinished": "unfinished",
    "num_starved": "starved",
    "num_preemptions": "preempted",
    "recompute_tax": "recomputed",
    "jain_fairness": "Jain",
    "request_throughput": "req/s",
}


def result_tables(rows: Sequence[Row], comparison: Comparison) -> list[TextTable]:
    """Return all tables of an evaluation in reading order, the main one last."""
    return [
        metric_table("Latency in ms, mean over cells", rows, LATENCY_COLUMNS),
        metric_table("Outcomes, mean over cells", rows, OUTCOME_COLUMNS),
        *condition_tables(comparison),
        comparison_table(comparison),
    ]


def stacked(table: TextTable, width: int) -> Iterator[TextTable]:
    """Split a table into tables that each fit the width; the first column is repeated.

    A column that alone is too wide still comes out whole.
    """
    widths = [
        max(len(text) for text in (head, *(row[index] for row in table.rows)))
        for index, head in enumerate(table.columns)
    ]
    first = min(widths[0], _MAX_LABEL)
    group: list[int] = []
    used = first
    for index in range(1, len(widths)):
        needed = widths[index] + _COLUMN_GAP
        if group and used + needed > width:
            yield _columns_of(table, group)
            group, used = [], first
        group.append(index)
        used += needed
    yield _columns_of(table, group)


def print_tables(tables: Sequence[TextTable], console: Console | None = None) -> None:
    """Print tables, stacked where they are wider than the terminal."""
    console = console or Console(width=shutil.get_terminal_size((WIDTH, 24)).columns)
    if not console.is_terminal:
        console.file.write(tables_text(tables, console.width))
        return
    for table in tables:
        console.print(Text(f"\n{table.title}", style="bold"))
        for part in stacked(table, console.width):
            console.print(_rendered(part, rich.box.SIMPLE_HEAD), crop=False)


def tables_text(tables: Sequence[TextTable], width: int = WIDTH) -> str:
    """Return what `print_tables` prints where the output is no terminal."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    for table in tables:
        stream.write(f"\n{table.title}\n")
        for part in stacked(table, width):
            console.print(_rendered(part, _PLAIN_BOX), crop=False)
            stream.write("\n")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _columns_of(table: TextTable, group: Sequence[int]) -> TextTable:
    chosen = (0, *group)
    return TextTable(
        table.title,
        tuple(table.columns[index] for index in chosen),
        tuple(tuple(row[index] for index in chosen) for row in table.rows),
    )


def _rendered(table: TextTable, box: rich.box.Box) -> Table:
    made = Table(box=box, pad_edge=False, show_edge=False, padding=(0, _COLUMN_GAP - 1, 0, 0))
    for index, head in enumerate(table.columns):
        longest = max(len(text) for text in (head, *(row[index] for row in table.rows)))
        if index == 0:
            made.add_column(head, overflow="fold", min_width=min(longest, _MAX_LABEL))
        else:
            made.add_column(head, justify="right", no_wrap=True, min_width=longest)
    for row in table.rows:
        made.add_row(*(Text(text) for text in row))
    return made


def _difference(versus: Versus | None, *, is_best: bool) -> str:
    if versus is None:
        return "best heuristic" if is_best else MISSING
    return format_interval(versus.difference, signed=True)


def _record(versus: Versus | None) -> str:
    if versus is None:
        return MISSING
    return f"{versus.num_better}/{versus.difference.num_values}"


def _format_mean(key: str, values: Sequence[Cell]) -> str:
    numbers = [float(value) for value in values if value is not None]
    numbers = [number for number in numbers if not math.isnan(number)]
    if not numbers:
        return MISSING
    mean = sum(numbers) / len(numbers)
    form: Callable[[Cell], str] = format_amount
    if key.startswith(("goodput", "slo_attainment", "jain", "recompute_tax")):
        form = format_number
    elif key.startswith("num_") and mean.is_integer():
        return str(int(mean))
    return form(mean)
