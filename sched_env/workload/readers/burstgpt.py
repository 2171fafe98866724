"""BurstGPT traces: whole seconds, columns chosen by name.

BurstGPT_3 inserts ``Session ID`` and ``Elapsed time`` after the stamp, so positions mean nothing.
Stamps are whole seconds (text such as ``19440110.0`` in BurstGPT_3); rows of one second came one
after another on the traced system. Failed requests have 0 response tokens, usually 0 of both.
"""

from __future__ import annotations

from sched_env.workload.readers.csv_columns import CsvColumns
from sched_env.workload.readers.raw_requests import TICKS_PER_S, RawRequests, ReadOptions
from sched_env.workload.readers.trace_file import TraceFile

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def read_burstgpt(file: TraceFile, options: ReadOptions) -> RawRequests:
    """Read BurstGPT 1, 2 or 3; all models are kept.

    Raises:
        TraceError: a missing column or a bad value.
    """
    source = CsvColumns(file)
    source.require(*COLUMNS)
    ticks_per_s = TICKS_PER_S[options.time_unit or "s"]
    return RawRequests(
        format="burstgpt",
        arrival=source.times("Timestamp"),
        ticks_per_s=ticks_per_s,
        resolution_s=1.0 / ticks_per_s,
        prompt_tokens=source.token_counts("Request tokens"),
        output_tokens=source.token_counts("Response tokens"),
    )
