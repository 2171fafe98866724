"""The page of an arena, its tables as data, and the regime map as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sched_env.config.loader import to_yaml
from sched_env.evaluation.arena.breakdown import breakdown_tables
from sched_env.evaluation.arena.ceiling_rows import CeilingRow
from sched_env.evaluation.arena.regime_plot import plot_regimes
from sched_env.evaluation.arena.regimes import Regime, regime_table, regimes
from sched_env.evaluation.arena.run import ArenaResult
from sched_env.evaluation.budgets import opponents_table, policies_table
from sched_env.evaluation.files import write_json, write_text
from sched_env.evaluation.plots import can_plot
from sched_env.evaluation.report import markdown
from sched_env.evaluation.table import (
    LATENCY_COLUMNS,
    OUTCOME_COLUMNS,
    TextTable,
    comparison_table,
    format_number,
    metric_table,
)

PAGE = "arena.md"
MAP = "regimes.png"


def arena_tables(result: ArenaResult) -> list[TextTable]:
    """Return the tables of an arena in reading order, the regime map last."""
    comparison = result.comparison()
    rows, found = result.rows, regimes(result.rows)
    tie = result.config.tie_within
    classes = [one.name for one in result.config.env.service.classes]
    tables = [
        policies_table(result.policies),
        comparison_table(comparison),
        opponents_table(comparison),
        *breakdown_tables(rows),
        metric_table("Outcomes, mean over cells", rows, OUTCOME_COLUMNS),
        metric_table("Latency in ms, mean over cells", rows, LATENCY_COLUMNS),
        metric_table("By service class, mean over cells", rows, _class_columns(classes)),
    ]
    if result.ceilings:
        tables.append(ceiling_table(result.ceilings))
    for trace in dict.fromkeys(str(row["trace"]) for row in rows):
        here = [row for row in rows if row["trace"] == trace]
        tables.append(regime_table(regimes(here), tie_within=tie, title=f"Who wins on {trace}"))
    tables.append(regime_table(found, tie_within=tie, title="Who wins, over all traces"))
    return tables


def _class_columns(classes: Sequence[str]) -> dict[str, str]:
    columns = {f"goodput_weighted_{name}": f"goodput {name}" for name in classes}
    return columns | {f"p99_ttft_ms_{name}": f"TTFT p99 {name}" for name in classes}


def ceiling_table(ceilings: Sequence[CeilingRow]) -> TextTable:
    """Return what lies above the best opponents, mean over traces and seeds, by condition."""
    rows = []
    for pool, slo, load in dict.fromkeys((one.kv_pool, one.slo, one.load) for one in ceilings):
        here = [one for one in ceilings if (one.kv_pool, one.slo, one.load) == (pool, slo, load)]
        means = [
            float(np.mean([getattr(one, name) for one in here]))
            for name in ("achieved", "hindsight_start", "luck", "hindsight", "fluid_bound")
        ]
        rows.append((f"{pool} KV, {slo} SLO, load {load:g}", *map(format_number, means)))
    return TextTable(
        "Ceilings of weighted goodput, mean over traces",
        ("condition", "best opponent", "true lengths", "luck", "hindsight", "bound"),
        tuple(rows),
    )


def write_arena(result: ArenaResult, folder: Path) -> Path:
    """Write rows, comparison, regimes, ceilings, page and picture; return the page."""
    found = regimes(result.rows)
    write_text(folder / "config.yaml", to_yaml(result.config))
    write_json(folder / "summary.json", result.comparison().to_dict())
    write_json(folder / "regimes.json", [dataclasses.asdict(one) for one in found])
    write_json(folder / "ceilings.json", [dataclasses.asdict(one) for one in result.ceilings])
    if can_plot():
        plot_regimes(found, folder / MAP, tie_within=result.config.tie_within)
    page = folder / PAGE
    write_text(page, page_text(result, found, has_map=can_plot()))
    write_json(folder / "results.json", list(result.rows))
    return page


def page_text(result: ArenaResult, found: Sequence[Regime], *, has_map: bool) -> str:
    """Return the page as Markdown."""
    config = result.config
    tables = arena_tables(result)
    parts = [
        f"# Arena {config.name}\n",
        f"{len(result.rows):,} simulations on the {config.split} split: "
        f"{len(config.traces) + len(config.bursts)} traces, loads "
        f"{', '.join(f'{load:g}' for load in config.loads)}, "
        f"{len(config.kv_pools)} KV pools, {len(config.slo_factors)} SLO tightness levels, "
        f"{config.num_seeds} paired seeds. Every policy met the same requests on the same "
        "server.\n",
        markdown(tables[-1]),
    ]
    alike = [one for one in found if one.spread < config.tie_within]
    if alike:
        where = "; ".join(f"{one.kv_pool} KV, {one.slo} SLO, load {one.load:g}" for one in alike)
        parts.append(
            f"Scheduling does not matter (all within {config.tie_within:g}) at: {where}.\n"
        )
    if has_map:
        parts.append(f"![Who wins where]({MAP})\n")
    parts += [markdown(table) for table in tables[:-1]]
    return "\n".join(parts)
