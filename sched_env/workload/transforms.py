"""Transforms of request tables: window, rate, split, service classes, predictions, limits.

The draws per row are the compiled core's own, so what is assigned here for a seed is what a
simulation with that seed draws by itself.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sched_env.compiled import compiled
from sched_env.errors import ConfigError, TraceError
from sched_env.workload.readers.clean_rows import clip_lengths
from sched_env.workload.service_classes import draw_class, draw_predicted_tokens, draw_slo_jitter
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


def assign_service_classes(
    table: RequestTable, classes: npt.NDArray[np.void], seed: int
) -> RequestTable:
    """Return the table with a class drawn for every row that has none.

    Args:
        table: requests.
        classes: ``SERVICE_CLASS`` array (c,).
        seed: the episode's seed.

    Raises:
        TraceError: a row names a class beyond ``classes``.
    """
    _check_classes(table, classes)
    return table.with_columns(service_class=_classes(classes, table.service_class, seed))


def request_weights(table: RequestTable, classes: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return each row's weight in goodput, float64 (n,).

    Raises:
        TraceError: a row has no class yet, or one beyond ``classes``.
    """
    return classes["weight"][_assigned(table, classes)]


def request_ttft_slos(
    table: RequestTable, classes: npt.NDArray[np.void], seed: int
) -> npt.NDArray[np.float64]:
    """Return each row's TTFT objective in seconds with its jitter, float64 (n,).

    The server adds twice the request's lone prefill time.

    Raises:
        TraceError: a row has no class yet, or one beyond ``classes``.
    """
    return classes["ttft_slo_s"][_assigned(table, classes)] * _jitters(len(table), seed)


def predict_lengths(
    table: RequestTable,
    kind: Literal["none", "noisy", "oracle"],
    *,
    sigma: float = 0.5,
    seed: int = 0,
) -> RequestTable:
    """Return the table with predictions of the output length where it has none.

    Args:
        table: requests.
        kind: ``none`` clears all predictions, ``noisy`` draws them log-normal around the true
            length, ``oracle`` gives the true length.
        sigma: standard deviation of the log of a noisy prediction.
        seed: the episode's seed.

    Raises:
        ConfigError: no such kind, or a negative or infinite sigma.
    """
    if kind not in ("none", "noisy", "oracle"):
        raise ConfigError(f"length prediction {kind!r} is not one of none, noisy, oracle")
    if not 0 <= sigma <= 10:
        raise ConfigError(f"sigma {sigma} of a length prediction must lie in 0..10")
    if kind == "none":
        return table.with_columns(predicted_output_tokens=np.full(len(table), np.nan))
    drawn = _predictions(table.output_tokens, sigma if kind == "noisy" else 0.0, seed)
    given = table.predicted_output_tokens
    return table.with_columns(predicted_output_tokens=np.where(np.isnan(given), drawn, given))


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


def _check_classes(table: RequestTable, classes: npt.NDArray[np.void]) -> None:
    highest = int(np.max(table.service_class, initial=-1))
    if highest >= len(classes):
        raise TraceError(
            f"{table.source.name}: service class {highest} in a row, but the classes are "
            f"0..{len(classes) - 1}; add the class or correct the trace"
        )


def _assigned(table: RequestTable, classes: npt.NDArray[np.void]) -> npt.NDArray[np.int8]:
    _check_classes(table, classes)
    if np.any(table.service_class < 0):
        raise TraceError(
            f"{table.source.name}: rows without service class; call assign_service_classes first"
        )
    return table.service_class


@compiled
def _classes(
    classes: npt.NDArray[np.void], given: npt.NDArray[np.int8], seed: int
) -> npt.NDArray[np.int8]:
    drawn = np.empty(len(given), np.int8)
    for row in range(len(given)):
        drawn[row] = given[row] if given[row] >= 0 else draw_class(classes, seed, row)
    return drawn


@compiled
def _jitters(num_rows: int, seed: int) -> npt.NDArray[np.float64]:
    jitters = np.empty(num_rows, np.float64)
    for row in range(num_rows):
        jitters[row] = draw_slo_jitter(seed, row)
    return jitters


@compiled
def _predictions(
    output_tokens: npt.NDArray[np.int32], sigma: float, seed: int
) -> npt.NDArray[np.float64]:
    predicted = np.empty(len(output_tokens), np.float64)
    for row in range(len(output_tokens)):
        predicted[row] = draw_predicted_tokens(output_tokens[row], sigma, seed, row)
    return predicted
