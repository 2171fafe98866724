"""A comparison as a Markdown page with a bar chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sched_env.config.yaml_text import is_mapping, read_yaml_mapping
from sched_env.errors import SchedEnvError
from sched_env.evaluation.compare import Comparison, compare
from sched_env.evaluation.files import read_json_mapping, write_text
from sched_env.evaluation.plots import can_plot, plot_comparison
from sched_env.evaluation.results import CONFIG, ENVIRONMENT, RESULTS, read_rows
from sched_env.evaluation.statistics import Interval
from sched_env.evaluation.table import (
    LATENCY_COLUMNS,
    OUTCOME_COLUMNS,
    TextTable,
    comparison_table,
    condition_tables,
    metric_table,
)
from sched_env.metrics.summary import Row

REPORT = "report.md"
PLOT = "goodput_weighted.png"

_FEWEST_PAIRS = 5
"""Below this number of values a bootstrap interval covers far less often than it says."""

_CLASS_METRICS = ("goodput_weighted_", "p99_ttft_ms_", "p99_tpot_ms_")


@dataclass(frozen=True)
class ReportFiles:
    """What a report consists of; ``plot`` is None without matplotlib."""

    page: Path
    plot: Path | None


def report(folder: str | Path) -> ReportFiles:
    """Write ``report.md``, and a bar chart where matplotlib is installed, beside the results.

    Args:
        folder: Folder of an evaluation, or a run folder that holds one.

    Raises:
        SchedEnvError: there are no results in the folder.
    """
    found = find_results(Path(folder))
    rows = read_rows(found)
    comparison = compare(rows)
    plot = found / PLOT if can_plot() else None
    if plot is not None:
        plot_comparison(comparison, plot)
    page = found / REPORT
    write_text(page, report_text(rows, comparison, found, plot))
    return ReportFiles(page, plot)


def find_results(folder: Path) -> Path:
    """Return the folder with ``results.json``: this one, or the newest right below it.

    Raises:
        SchedEnvError: there is none.
    """
    if (folder / RESULTS).is_file():
        return folder
    below = sorted(folder.glob(f"*/{RESULTS}"), key=lambda file: file.stat().st_mtime)
    if below:
        return below[-1].parent
    raise SchedEnvError(
        f"no {RESULTS} in {folder} or right below it: run sched-env evaluate with --out DIR first"
    )


def report_text(
    rows: Sequence[Row], comparison: Comparison, folder: Path, plot: Path | None
) -> str:
    """Return the page as Markdown.

    Args:
        rows: Flat rows.
        comparison: The policies compared.
        folder: Where config.yaml and environment.json are looked for.
        plot: The chart, in the same folder.
    """
    parts = [
        "# Comparison of schedulers\n",
        _finding(comparison),
        markdown(comparison_table(comparison)),
        _how_compared(comparison),
        *(markdown(table) for table in condition_tables(comparison)),
    ]
    if plot is not None:
        parts.append(f"![{comparison.metric} by trace and load]({plot.name})\n")
    parts.append(markdown(metric_table("Outcomes, mean over cells", rows, OUTCOME_COLUMNS)))
    parts.append(markdown(metric_table("Latency in ms, mean over cells", rows, LATENCY_COLUMNS)))
    if classes := _classes(rows):
        parts.append(markdown(metric_table("By service class, mean over cells", rows, classes)))
    parts.append(_setting(rows, folder))
    return "\n".join(parts)


def markdown(table: TextTable) -> str:
    """Return a table as a Markdown section."""
    lines = [f"## {table.title}", "", _line(table.columns)]
    lines.append(_line(["---"] + ["---:"] * (len(table.columns) - 1)))
    lines.extend(_line(row) for row in table.rows)
    return "\n".join(lines) + "\n"


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _finding(comparison: Comparison) -> str:
    """Say which policies are above or below the best heuristic, by their intervals."""
    best = comparison.best_heuristic
    if best is None:
        return "No heuristic was evaluated, so there is nothing to compare with.\n"
    lines = [f"The best heuristic by mean {comparison.metric} over these cells is **{best}**."]
    for one in comparison.policies:
        if one.versus_best is None:
            continue
        low, high = one.versus_best.difference.low, one.versus_best.difference.high
        if not comparison.larger_is_better:
            low, high = -high, -low
        verdict = "not told apart from it"
        if low > 0:
            verdict = "better"
        elif high < 0:
            verdict = "worse"
        lines.append(f"- **{one.policy}** is {verdict} ({_pairs(one.versus_best.difference)}).")
    return "\n".join(lines) + "\n"


def _pairs(difference: Interval) -> str:
    count = difference.num_values
    if count < 2:
        return f"{count} pair, which gives no interval"
    caution = "" if count >= _FEWEST_PAIRS else ", too few for the interval to be trusted"
    return f"{count} pairs{caution}"


def _how_compared(comparison: Comparison) -> str:
    return (
        "A cell is one trace, load and seed; every policy met the same requests, service classes, "
        "SLOs and length predictions in it. Differences are paired by cell; "
        f"intervals cover {100 * comparison.confidence:g} % by a {comparison.method} bootstrap of "
        f"{comparison.num_resamples:,} resamples over cells. The best heuristic was chosen on "
        "these cells, which favours it. *better* counts the cells in which a policy is ahead of "
        "it. Metrics are defined in docs/metrics.md.\n"
    )


def _classes(rows: Sequence[Row]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for prefix in _CLASS_METRICS:
        for key in dict.fromkeys(key for row in rows for key in row if key.startswith(prefix)):
            columns[key] = f"{prefix.rstrip('_')} {key.removeprefix(prefix)}"
    return columns


def _setting(rows: Sequence[Row], folder: Path) -> str:
    """Return what the comparison was run with, from the files beside the results."""
    predictions = sorted({str(row.get("length_prediction", "unknown")) for row in rows})
    splits = sorted({str(row.get("split", "unknown")) for row in rows})
    lines = [
        "## Setting\n",
        f"- rows: {len(rows)}; split: {', '.join(splits)}",
        f"- length prediction: {', '.join(predictions)}",
    ]
    environment = folder / ENVIRONMENT
    if environment.is_file():
        made = read_json_mapping(environment)
        lines.append(
            f"- sched-env {made.get('sched_env')}, Python {made.get('python')}, "
            f"{made.get('processor')}, {made.get('created_utc')}"
        )
    config = folder / CONFIG
    if config.is_file():
        env = _part(read_yaml_mapping(config), "env")
        lines.append(f"- shed_hopeless: {_part(env, 'service').get('shed_hopeless')}")
        lines += ["", "```yaml", yaml.safe_dump(env.get("scheduler"), sort_keys=False) + "```"]
    return "\n".join(lines) + "\n"


def _part(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if is_mapping(found) else {}
