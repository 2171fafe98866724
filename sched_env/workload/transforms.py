"""Transforms of request tables: window, rate, split, merge, longest request."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from sched_env.errors import ConfigError, TraceError
from sched_env.workload.readers.clean_rows import clip_lengths
from sched_env.workload.source import TraceSource
from sched_env.workload.table import COLUMN_DTYPES, RequestTable, SplitName


def window(table: RequestTable, start_s: float, end_s: float) -> RequestTable:
    """Return the requests with ``start_s <= arrival < end_s``, the first of them at 0.

    Raises:
        TraceError: the window ends before it starts, or nothing arrives in it.
    """
    part = table.window(start_s, end_s)
    if not len(part):
        raise TraceError(
            f"{table.source.name}: no request from {start_s:g} to {end_s:g} s of "
            f"{table.span_s:g} s; choose another window"
        )
    return part


def scale_rate(table: RequestTable, factor: float) -> RequestTable:
    """Return the table with arrivals ``factor`` times as fast; intervals are scaled.

    Raises:
        TraceError: the factor is not a finite number above 0.
    """
    return table.with_rate_scale(factor)


def scale_to_rate(table: RequestTable, rate_rps: float) -> RequestTable:
    """Return the table with its mean rate set to ``rate_rps``; intervals are scaled.

    Raises:
        TraceError: the rate is not above 0, or all requests arrive at once.
    """
    if not np.isfinite(table.mean_rate_rps):
        raise TraceError(f"{table.source.name}: all requests arrive at once; no rate to scale")
    return table.with_rate_scale(rate_rps / table.mean_rate_rps)


def split_by_time(table: RequestTable, name: SplitName) -> RequestTable:
    """Return the train (0-60 %), validation (60-70 %) or test (70-100 %) part of the span.

    Raises:
        UnknownNameError: no such split.
        TraceError: nothing arrives in that part.
    """
    return table.split(name)


def superpose(tables: list[RequestTable]) -> RequestTable:
    """Merge tables that run at the same time into one, sorted by arrival.

    Equal arrivals keep the order of ``tables``. Prefix ids are only kept for a single table: ids
    of different traces mean nothing to each other.

    Raises:
        TraceError: no table, or several of which one has prefix ids.
    """
    if not tables:
        raise TraceError("no table to superpose; give at least one")
    if len(tables) == 1:
        return tables[0]
    if any(table.hash_ids is not None for table in tables):
        raise TraceError(
            "prefix ids of different traces cannot be merged; remove them with "
            "table.with_columns(hash_ids=None)"
        )
    times = np.concatenate([table.arrival_time_s for table in tables])
    order = np.argsort(times, kind="stable")
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(table, name) for table in tables])[order]
        for name in COLUMN_DTYPES
    }
    names = " + ".join(table.source.name for table in tables)
    return RequestTable(**columns, source=TraceSource(name=names, format="superposed"))


def limit_model_len(
    table: RequestTable, max_model_len: int, too_long: Literal["reject", "clip"] = "reject"
) -> RequestTable:
    """Return the table without rows of prompt + output above ``max_model_len`` tokens.

    ``clip`` shortens them instead. The source counts them; times stay.

    Raises:
        ConfigError: a limit below 2, or no such choice.
        TraceError: no row is left.
    """
    if max_model_len < 2 or too_long not in ("reject", "clip"):
        raise ConfigError(
            f"max_model_len {max_model_len} must be >= 2 and too_long {too_long!r} reject or clip"
        )
    prompt, output = table.prompt_tokens.astype(np.int64), table.output_tokens.astype(np.int64)
    is_long = prompt + output > max_model_len
    count = int(np.sum(is_long))
    if too_long == "reject":
        if count == len(table):
            raise TraceError(f"{table.source.name}: every row is longer than {max_model_len}")
        drops = {f"prompt + output > max_model_len {max_model_len}": count}
        return table.take(~is_long).with_columns(source=table.source.noted(drops=drops))
    prompt, output, hash_ids = clip_lengths(prompt, output, table.hash_ids, max_model_len)
    changes = {f"clipped to max_model_len {max_model_len}": count}
    return table.with_columns(
        prompt_tokens=prompt,
        output_tokens=output,
        hash_ids=hash_ids,
        source=table.source.noted(changes=changes),
    )
