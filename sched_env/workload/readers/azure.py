"""Azure LLM inference traces of 2023, 2024 and 2025: dates, context and generated tokens.

Columns ``TIMESTAMP,ContextTokens,GeneratedTokens`` (2025 adds ``NumImages``, which is not used).
"""

from __future__ import annotations

from sched_env.errors import TraceError
from sched_env.workload.readers.csv_columns import CsvColumns
from sched_env.workload.readers.raw_requests import RawRequests, ReadOptions
from sched_env.workload.readers.time_stamps import stamps_ns
from sched_env.workload.readers.trace_file import TraceFile

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure(file: TraceFile, options: ReadOptions) -> RawRequests:
    """Read an Azure trace; stamps with and without fraction or zone may mix.

    Raises:
        TraceError: a missing column, a bad value, or a ``time_unit`` for a column of dates.
    """
    if options.time_unit is not None:
        raise TraceError(f"{file.name}: azure stamps are dates; leave time_unit out")
    source = CsvColumns(file)
    source.require(*COLUMNS)
    notes = ("NumImages is not used: image tokens are not counted",)
    return RawRequests(
        format="azure",
        arrival=stamps_ns(source, "TIMESTAMP"),
        ticks_per_s=1e9,
        resolution_s=0.0,
        prompt_tokens=source.token_counts("ContextTokens"),
        output_tokens=source.token_counts("GeneratedTokens"),
        notes=notes if source.has("NumImages") else (),
    )
