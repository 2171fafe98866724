"""From a file's rows to a request table: failures, too-long rows, order, clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError
from sched_env.workload.hash_ids import HashIds
from sched_env.workload.readers.clock_ticks import measured_tick_s, spread_in_ticks
from sched_env.workload.readers.raw_requests import (
    ARRIVAL_PURPOSE,
    SPREAD_PURPOSE,
    RawRequests,
    ReadOptions,
)
from sched_env.workload.source import TraceSource
from sched_env.workload.table import RequestTable

FloatArray = npt.NDArray[np.float64]


@dataclass
class _Rows:
    """The rows on their way: counts, which are kept, and what was done so far."""

    name: str
    prompt: npt.NDArray[np.int64]
    output: npt.NDArray[np.int64]
    hash_ids: HashIds | None
    columns: dict[str, npt.NDArray[Any]]
    keep: npt.NDArray[np.bool_]
    drops: dict[str, int]
    changes: dict[str, int]


def clean_rows(
    raw: RawRequests, name: str, options: ReadOptions, path: Path | None = None
) -> RequestTable:
    """Turn the rows of a file into a table, as the options say; count what was left out.

    Raises:
        TraceError: no row is left, zero counts are refused, or arrivals are missing.
    """
    keep = np.ones(len(raw.prompt_tokens), np.bool_)
    columns = dict(raw.columns)
    rows = _Rows(name, raw.prompt_tokens, raw.output_tokens, raw.hash_ids, columns, keep, {}, {})
    _settle_zero_counts(rows, options)
    _settle_too_long(rows, options)
    if not np.any(rows.keep):
        reasons = ", ".join(
            f"{count} with {reason}" for reason, count in rows.drops.items() if count
        )
        raise TraceError(f"{name}: no row is left ({reasons}); change what is dropped")
    chosen = np.flatnonzero(rows.keep)
    clock = _arrivals(raw, chosen, name if path is None else str(path), options)
    chosen = chosen[clock.order]
    changes = {**rows.changes, "moved by sorting by arrival": clock.num_moved}
    source = TraceSource(name, raw.format, None if path is None else str(path), clock.tick_s)
    return RequestTable.from_columns(
        arrival_time_s=clock.arrival_time_s,
        prompt_tokens=rows.prompt[chosen],
        output_tokens=rows.output[chosen],
        hash_ids=None if rows.hash_ids is None else rows.hash_ids.take(chosen),
        source=source.noted(*raw.notes, *clock.notes, drops=rows.drops, changes=changes),
        **{column: values[chosen] for column, values in rows.columns.items()},
    )


def _settle_zero_counts(rows: _Rows, options: ReadOptions) -> None:
    no_prompt, no_output = rows.prompt == 0, rows.output == 0
    zero = no_prompt | no_output
    if options.zero_tokens == "drop":
        rows.keep &= ~zero
        rows.drops["0 prompt and 0 output tokens"] = int(np.sum(no_prompt & no_output))
        rows.drops["0 prompt tokens"] = int(np.sum(no_prompt & ~no_output))
        rows.drops["0 output tokens"] = int(np.sum(no_output & ~no_prompt))
    elif options.zero_tokens == "keep_failed":
        rows.changes["kept as failed, zero token counts set to 1"] = int(np.sum(zero))
        rows.columns["failed"] = zero | rows.columns.get("failed", np.zeros(len(zero), np.bool_))
        rows.hash_ids = _with_block_for_empty(rows.hash_ids, rows.prompt)
        rows.prompt, rows.output = np.maximum(rows.prompt, 1), np.maximum(rows.output, 1)
    elif np.any(zero):
        raise TraceError(
            f"{rows.name}: {int(np.sum(zero))} rows have 0 prompt or output tokens, the first is "
            f"data row {int(np.argmax(zero)) + 1}; set zero_tokens to drop or keep_failed"
        )


def _settle_too_long(rows: _Rows, options: ReadOptions) -> None:
    limit = options.max_model_len
    if limit is None:
        return
    too_long = rows.keep & (rows.prompt + rows.output > limit)
    if options.too_long == "reject":
        rows.keep &= ~too_long
        rows.drops[f"prompt + output > max_model_len {limit}"] = int(np.sum(too_long))
    else:
        clipped = clip_lengths(rows.prompt, rows.output, rows.hash_ids, limit)
        rows.prompt, rows.output, rows.hash_ids = clipped
        rows.changes[f"clipped to max_model_len {limit}"] = int(np.sum(too_long))


def clip_lengths(
    prompt: npt.NDArray[np.int64],
    output: npt.NDArray[np.int64],
    hash_ids: HashIds | None,
    max_model_len: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], HashIds | None]:
    """Cut rows to ``prompt + output <= max_model_len``.

    The output is cut to what the prompt leaves, at least 1, and the prompt to all but that 1.
    Prefix ids past the shortened prompt go.
    """
    clipped = np.minimum(prompt, max_model_len - 1)
    if hash_ids is not None:
        hash_ids = hash_ids.shortened(-(-clipped // hash_ids.block_tokens))
    return clipped, np.minimum(output, max_model_len - clipped), hash_ids


def _with_block_for_empty(
    hash_ids: HashIds | None, prompt: npt.NDArray[np.int64]
) -> HashIds | None:
    """Give prompts of 0 tokens, which become 1 token, a block id that nothing shares."""
    empty = np.flatnonzero(prompt == 0)
    if hash_ids is None or not len(empty):
        return hash_ids
    values = hash_ids.values
    unused = int(values.max(initial=-1)) + 1
    inserted = np.insert(values, hash_ids.offsets[empty], unused + np.arange(len(empty)))
    shift = np.concatenate(([0], np.cumsum(prompt == 0)))
    return HashIds(hash_ids.offsets + shift, inserted, hash_ids.block_tokens)


@dataclass(frozen=True)
class _Clock:
    """Arrivals in seconds from the first, the order of the rows, and the clock's tick."""

    arrival_time_s: FloatArray
    order: npt.NDArray[np.int64]
    tick_s: float = 0.0
    notes: tuple[str, ...] = ()
    num_moved: int = 0


def _arrivals(
    raw: RawRequests, rows: npt.NDArray[np.int64], name: str, options: ReadOptions
) -> _Clock:
    if options.arrival is not None:
        times = options.arrival.sample(options.rng(ARRIVAL_PURPOSE), num_requests=len(rows))
        note = f"arrivals drawn from {options.arrival} with seed {options.seed}"
        return _Clock(times - times[0], np.arange(len(rows), dtype=np.int64), notes=(note,))
    if raw.arrival is None:
        raise TraceError(
            f"{name}: {raw.format} rows without arrival times; draw them with sched-env trace "
            f"convert {name} --arrivals poisson:RATE, in requests/s (in Python: "
            "arrival=PoissonArrivals(rate))"
        )
    ticks = raw.arrival[rows]
    order = np.argsort(ticks, kind="stable")
    num_moved = int(np.sum(ticks < np.maximum.accumulate(ticks)))
    ticks = ticks[order]
    seconds = (ticks - ticks[0]) / raw.ticks_per_s
    tick_s = options.resolution_s or max(raw.resolution_s, measured_tick_s(seconds))
    if not options.spread_resolution:
        note = f"clock ticks of {tick_s:g} s: closer arrivals keep the file's order"
        return _Clock(seconds, order, tick_s, (note,) if tick_s > 0 else (), num_moved)
    if tick_s == 0:
        raise TraceError(f"{name}: the clock shows no coarse tick; give resolution_s to spread")
    seconds = spread_in_ticks(seconds, tick_s, options.rng(SPREAD_PURPOSE))
    note = f"arrivals spread inside ticks of {tick_s:g} s with seed {options.seed}"
    return _Clock(seconds - seconds[0], order, 0.0, (note,), num_moved)
