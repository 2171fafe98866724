"""The trace formats by name, and recognising one by content.

A format is known by its column names, never by the size of its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sched_env.errors import TraceError, UnknownNameError
from sched_env.workload.readers import azure, burstgpt, generic, prefix_blocks, servegen, vidur
from sched_env.workload.readers.csv_columns import header_fields
from sched_env.workload.readers.faults import shown
from sched_env.workload.readers.json_lines import parse_object
from sched_env.workload.readers.parquet_columns import PARQUET_MAGIC, ParquetColumns
from sched_env.workload.readers.raw_requests import RawRequests, ReadOptions
from sched_env.workload.readers.trace_file import TraceFile


@dataclass(frozen=True)
class TraceFormat:
    """One trace format.

    Attributes:
        read: reads a file of this format.
        columns: names that every file of it has.
        containers: of csv, json, parquet.
        mark: a further name that tells it from a format with the same columns.
        description: unit of time and container, for a list of formats.
    """

    read: Callable[[TraceFile, ReadOptions], RawRequests]
    columns: tuple[str, ...]
    containers: tuple[str, ...]
    description: str
    mark: str | None = None


FORMATS: dict[str, TraceFormat] = {
    "azure": TraceFormat(azure.read_azure, azure.COLUMNS, ("csv",), "Azure 2023-2025, CSV, dates"),
    "burstgpt": TraceFormat(
        burstgpt.read_burstgpt, burstgpt.COLUMNS, ("csv",), "BurstGPT 1-3, CSV, whole seconds"
    ),
    "qwen": TraceFormat(
        prefix_blocks.read_qwen,
        prefix_blocks.COLUMNS,
        ("json",),
        "Qwen-Bailian, JSON lines, seconds, blocks of 16 tokens",
        mark="chat_id",
    ),
    "mooncake": TraceFormat(
        prefix_blocks.read_mooncake,
        prefix_blocks.COLUMNS,
        ("json",),
        "Mooncake, JSON lines, milliseconds, blocks of 512 tokens",
    ),
    "vidur": TraceFormat(
        vidur.read_vidur, vidur.COLUMNS, ("csv",), "Vidur processed traces, CSV, seconds"
    ),
    "generic": TraceFormat(
        generic.read_generic,
        generic.COLUMNS,
        ("csv", "json", "parquet"),
        "arrival_time_s, prompt_tokens, output_tokens ... as CSV, JSON lines or Parquet",
    ),
    "servegen": TraceFormat(
        servegen.read_servegen,
        (),
        (),
        "ServeGen chunk-N-trace.csv with chunk-N-dataset.json beside it, or a folder of them",
    ),
}


def named_format(name: str) -> TraceFormat:
    """Return a format by name.

    Raises:
        UnknownNameError: no such format.
    """
    if name not in FORMATS:
        raise UnknownNameError("trace format", name, FORMATS)
    return FORMATS[name]


def recognised_format(file: TraceFile) -> TraceFormat:
    """Return the format of a file by its first line.

    Raises:
        TraceError: it is like none; the message lists the columns found.
    """
    container, names = _container_and_names(file)
    if container == "csv" and servegen.is_trace_row(names):
        return FORMATS["servegen"]
    for trace_format in FORMATS.values():
        if (
            container in trace_format.containers
            and set(trace_format.columns) <= set(names)
            and (trace_format.mark is None or trace_format.mark in names)
        ):
            return trace_format
    found = ", ".join(shown(name)[1:-1] for name in names[:10])
    raise TraceError(
        f"{file.name}: no known trace format has the columns {found}.{_nearest(container, names)} "
        f"Formats: {', '.join(FORMATS)}; correct the header or name the format"
    )


def _container_and_names(file: TraceFile) -> tuple[str, tuple[str, ...]]:
    if file.data.startswith(PARQUET_MAGIC):
        return "parquet", ParquetColumns(file).names
    start = file.data.lstrip()[:1]
    if start == b"[":
        raise TraceError(f"{file.name}: a JSON array; write one object a line (JSON lines)")
    if start != b"{":
        return "csv", header_fields(file)
    lines = enumerate(file.text().split("\n"), start=1)
    line, text = next((line, text) for line, text in lines if text.strip())
    if text.strip() == "{" and servegen.is_dataset(file):
        raise TraceError(
            f"{file.name} is the dataset of a ServeGen client; give the chunk-N-trace.csv beside it"
        )
    return "json", tuple(parse_object(file.name, line, text))


def _nearest(container: str, names: tuple[str, ...]) -> str:
    """Return a hint at the format that shares most columns, if any does."""
    overlaps = {
        name: len(set(trace_format.columns) & set(names))
        for name, trace_format in FORMATS.items()
        if container in trace_format.containers
    }
    best = max(overlaps, key=lambda name: overlaps[name])
    if not overlaps[best]:
        return ""
    missing = [column for column in FORMATS[best].columns if column not in names]
    return f" Nearest is {best}, which also needs {', '.join(missing)}."
