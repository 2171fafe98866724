"""Read a trace by path, or an embedded workload by name."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from sched_env.errors import TraceError
from sched_env.workload.arrivals import ArrivalProcess
from sched_env.workload.readers.clean_rows import clean_rows
from sched_env.workload.readers.raw_requests import RawRequests, ReadOptions
from sched_env.workload.synthetic import WORKLOADS, synthesize
from sched_env.workload.table import RequestTable

DEFAULT_SPAN_S = 3600.0
"""Length of an embedded workload that is asked for by name, in seconds."""


class ReadKeywords(TypedDict, total=False):
    """The keywords of ``read_trace``: the fields of ``ReadOptions``, explained there."""

    seed: int
    zero_tokens: Literal["drop", "keep_failed", "refuse"]
    max_model_len: int | None
    too_long: Literal["reject", "clip"]
    spread_resolution: bool
    resolution_s: float | None
    arrival: ArrivalProcess | None
    time_unit: Literal["s", "ms", "us", "ns"] | None
    block_tokens: int | None
    window_s: tuple[float, float] | None
    length_correlation: float
    service_class_names: tuple[str, ...]


def read_trace(
    path_or_name: str | PathLike[str],
    *,
    format: str | None = None,
    **keywords: Unpack[ReadKeywords],
) -> RequestTable:
    """Read a trace file, or draw an embedded workload, as a request table from time 0.

    Args:
        path_or_name: a file, a folder of ServeGen clients, or the name of an embedded workload
            such as ``azure_conv`` (one hour of it).
        format: name of the format; ``None`` recognises it by column names.
        **keywords: fields of ``ReadOptions``: ``seed``, ``zero_tokens``, ``max_model_len``,
            ``too_long``, ``spread_resolution``, ``resolution_s``, ``arrival``, ``time_unit``,
            ``block_tokens``, ``window_s``, ``length_correlation``, ``service_class_names``.

    Raises:
        TraceError: the file cannot be read; the message names file, line and column.
        UnknownNameError: no such format.
        ConfigError: an option is out of range.
    """
    options = ReadOptions(**keywords)
    if not isinstance(path_or_name, str | PathLike):
        raise TraceError(f"{path_or_name!r} is no trace: give a file, a folder or a name")
    name = str(path_or_name)
    if not name.strip():
        raise TraceError(f"no trace is named: give a file or one of {', '.join(WORKLOADS)}")
    if name in WORKLOADS and format is None:
        return clean_rows(_embedded(name, options), name, options)
    from sched_env.workload.readers.file_rows import rows_of_file  # pyarrow, for files alone

    path = Path(path_or_name)
    raw = rows_of_file(path, format, options)
    table = clean_rows(raw, path.name, options, path)
    if raw.format == "servegen" or options.window_s is None:
        return table
    return _window(table, *options.window_s)


def _window(table: RequestTable, start_s: float, end_s: float) -> RequestTable:
    part = table.window(start_s, end_s)
    if not len(part):
        raise TraceError(
            f"{table.source.name}: no request from {start_s:g} to {end_s:g} s of "
            f"{table.span_s:g} s; choose another window_s"
        )
    return part


def _embedded(name: str, options: ReadOptions) -> RawRequests:
    start_s, end_s = options.window_s or (0.0, DEFAULT_SPAN_S)
    table = synthesize(name, duration_s=end_s, seed=options.seed).window(start_s, end_s)
    if not len(table):
        raise TraceError(f"{name}: no request from {start_s:g} to {end_s:g} s; widen window_s")
    return RawRequests(
        format="synthetic",
        arrival=table.arrival_time_s,
        ticks_per_s=1.0,
        resolution_s=0.0,
        prompt_tokens=table.prompt_tokens.astype("int64"),
        output_tokens=table.output_tokens.astype("int64"),
        notes=table.source.notes,
    )
