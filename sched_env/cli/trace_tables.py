"""The figures of a trace as text tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sched_env.evaluation.table import MISSING, TextTable, format_amount

if TYPE_CHECKING:
    from sched_env.workload.inspect import LengthSummary, TraceSummary


def trace_tables(summary: TraceSummary) -> list[TextTable]:
    """Return the tables that ``trace inspect`` prints."""
    tables = [_overview(summary), _lengths(summary), _arrivals(summary)]
    if summary.prefix is not None:
        prefix = summary.prefix
        rows = (
            ("blocks of all prompts", str(prefix.num_blocks)),
            ("tokens per block", str(prefix.block_tokens)),
            ("blocks seen before", _share(prefix.block_hit_rate)),
            ("prompt tokens seen before", _share(prefix.token_hit_rate)),
            ("requests seen before as a whole", str(prefix.num_full_hits)),
        )
        tables.append(TextTable("Shared prefixes", ("", "value"), rows))
    tables.append(_left_out(summary))
    return tables


def _overview(summary: TraceSummary) -> TextTable:
    source = summary.source
    rows = (
        ("format", source.format),
        ("requests", str(summary.num_requests)),
        ("span", f"{summary.span_s:.1f} s"),
        ("mean rate", _rate(summary.mean_rate_rps)),
        ("clock tick", f"{source.resolution_s:g} s" if source.resolution_s else "none found"),
        ("sha256", summary.file_sha256 or MISSING),
    )
    return TextTable(f"Trace {source.name}", ("", "value"), rows)


def _rate(rate_rps: float) -> str:
    return MISSING if math.isnan(rate_rps) else f"{rate_rps:.4g} requests/s"


def _lengths(summary: TraceSummary) -> TextTable:
    columns = {"prompt": summary.prompt_tokens, "output": summary.output_tokens}
    percentiles = next(iter(columns.values())).percentiles
    heads = ("tokens", "mean", "min", *(f"p{percentile}" for percentile in percentiles), "max")
    rows = tuple((name, *_length_row(lengths)) for name, lengths in columns.items())
    return TextTable("Lengths in tokens", heads, rows)


def _length_row(lengths: LengthSummary) -> tuple[str, ...]:
    percentiles = (f"{value:.0f}" for value in lengths.percentiles.values())
    return (f"{lengths.mean:.1f}", str(lengths.minimum), *percentiles, str(lengths.maximum))


def _arrivals(summary: TraceSummary) -> TextTable:
    rows = (
        ("variation of the gaps (1: Poisson)", format_amount(summary.gap_cv)),
        ("gaps of zero", _share(summary.zero_gap_share)),
        ("variance / mean per 1 s (1: Poisson)", format_amount(summary.dispersion_1s)),
        ("variance / mean per 10 s (1: Poisson)", format_amount(summary.dispersion_10s)),
        ("rank correlation of prompt and output", format_amount(summary.length_spearman)),
    )
    return TextTable("Arrivals", ("burstiness", "value"), rows)


def _left_out(summary: TraceSummary) -> TextTable:
    source = summary.source
    rows = [(reason, str(count)) for reason, count in source.drops.items()]
    rows += [(f"kept, but {change}", str(count)) for change, count in source.changes.items()]
    if summary.num_failed:
        rows.append(("kept, failed in the traced system", str(summary.num_failed)))
    return TextTable("Rows left out or changed", ("reason", "rows"), tuple(rows or [("none", "0")]))


def _share(value: float) -> str:
    return MISSING if value != value else f"{100 * value:.2f} %"
