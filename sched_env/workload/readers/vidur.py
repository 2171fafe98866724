"""Processed traces of Vidur: seconds from the first row, or lengths alone.

``splitwise_*`` have ``arrived_at``; the arXiv file has lengths only and needs an arrival process.
"""

from __future__ import annotations

from sched_env.workload.readers.csv_columns import CsvColumns
from sched_env.workload.readers.raw_requests import TICKS_PER_S, RawRequests, ReadOptions
from sched_env.workload.readers.trace_file import TraceFile

COLUMNS = ("num_prefill_tokens", "num_decode_tokens")


def read_vidur(file: TraceFile, options: ReadOptions) -> RawRequests:
    """Read a Vidur trace, with or without arrivals.

    Raises:
        TraceError: a missing column or a bad value.
    """
    source = CsvColumns(file)
    source.require(*COLUMNS)
    return RawRequests(
        format="vidur",
        arrival=source.times("arrived_at") if source.has("arrived_at") else None,
        ticks_per_s=TICKS_PER_S[options.time_unit or "s"],
        resolution_s=0.0,
        prompt_tokens=source.token_counts("num_prefill_tokens"),
        output_tokens=source.token_counts("num_decode_tokens"),
    )
