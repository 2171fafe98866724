"""Our own plain format, as CSV, JSON lines or Parquet.

| column | | meaning |
|---|---|---|
| ``arrival_time_s`` | number >= 0 | arrival in seconds; leave the column out to draw arrivals |
| ``prompt_tokens`` | whole, needed | prompt length |
| ``output_tokens`` | whole, needed | true output length |
| ``priority`` | number | larger is served first; default 0 |
| ``service_class`` | index or name | service class; empty = drawn per seed |
| ``predicted_output_tokens`` | number > 0 | predicted output length; empty = made per seed |
| ``failed`` | 0 or 1 | the traced system failed this request |
| ``hash_ids`` | list of whole numbers | prefix block ids (CSV: separated by spaces) |
| ``block_tokens`` | whole | tokens per prefix block, the same in all rows; default 512 |

Other columns are passed over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sched_env.errors import did_you_mean
from sched_env.workload.columns import MAX_TOKENS
from sched_env.workload.readers.column_source import (
    ColumnSource,
    finite_number,
    is_empty,
    whole_number,
)
from sched_env.workload.readers.csv_columns import CsvColumns
from sched_env.workload.readers.json_lines import JsonLines
from sched_env.workload.readers.parquet_columns import PARQUET_MAGIC, ParquetColumns
from sched_env.workload.readers.prefix_blocks import block_ids
from sched_env.workload.readers.raw_requests import TICKS_PER_S, RawRequests, ReadOptions
from sched_env.workload.readers.trace_file import TraceFile
from sched_env.workload.service_classes import MAX_NUM_SERVICE_CLASSES

COLUMNS = ("prompt_tokens", "output_tokens")
_DEFAULT_BLOCK_TOKENS = 512


def read_generic(file: TraceFile, options: ReadOptions) -> RawRequests:
    """Read a trace in the plain format; the container is recognised by content.

    Raises:
        TraceError: a missing column or a bad value.
    """
    source = _source(file)
    source.require(*COLUMNS)
    prompt_tokens = source.token_counts("prompt_tokens")
    columns: dict[str, npt.NDArray[Any]] = {}
    if source.has("priority"):
        columns["priority"] = source.numbers("priority", empty=0.0)
    if source.has("service_class"):
        columns["service_class"] = _service_classes(source, options.service_class_names)
    if source.has("predicted_output_tokens"):
        columns["predicted_output_tokens"] = _predictions(source)
    if source.has("failed"):
        columns["failed"] = source.whole_numbers("failed", maximum=1, empty=0) == 1
    return RawRequests(
        format="generic",
        arrival=source.times("arrival_time_s") if source.has("arrival_time_s") else None,
        ticks_per_s=TICKS_PER_S[options.time_unit or "s"],
        resolution_s=0.0,
        prompt_tokens=prompt_tokens,
        output_tokens=source.token_counts("output_tokens"),
        columns=columns,
        hash_ids=block_ids(source, prompt_tokens, options.block_tokens or _block_tokens(source)),
    )


def _source(file: TraceFile) -> ColumnSource:
    if file.data.startswith(PARQUET_MAGIC):
        return ParquetColumns(file)
    return JsonLines(file) if file.data.lstrip().startswith(b"{") else CsvColumns(file)


def _block_tokens(source: ColumnSource) -> int:
    if not source.has("block_tokens"):
        return _DEFAULT_BLOCK_TOKENS
    sizes = source.whole_numbers("block_tokens", maximum=MAX_TOKENS)
    wrong = np.flatnonzero((sizes != sizes[0]) | (sizes < 1))
    if len(wrong):
        row = int(wrong[0])
        wanted = f"{max(1, sizes[0])}: every row has one size >= 1"
        raise source.fault(row, "block_tokens", int(sizes[row]), wanted)
    return int(sizes[0])


def _predictions(source: ColumnSource) -> npt.NDArray[np.float64]:
    wanted = "a number > 0"
    values = source.numbers("predicted_output_tokens", empty=np.nan, wanted=wanted)
    wrong = np.flatnonzero(values <= 0)
    if len(wrong):
        given = source.values("predicted_output_tokens")[wrong[0]]
        raise source.fault(int(wrong[0]), "predicted_output_tokens", given, wanted)
    return values


def _service_classes(source: ColumnSource, names: tuple[str, ...]) -> npt.NDArray[np.int8]:
    indices: list[int] = []
    for row, value in enumerate(source.values("service_class")):
        if is_empty(value):
            indices.append(-1)
            continue
        name = value.strip() if isinstance(value, str) else ""
        index = names.index(name) if name in names else whole_number(value)
        if index is None or not 0 <= index < MAX_NUM_SERVICE_CLASSES:
            hint = did_you_mean(name, names) if finite_number(value) is None else ""
            wanted = f"a class index or one of {', '.join(names)}.{hint}"
            raise source.fault(row, "service_class", value, wanted.rstrip("."))
        indices.append(index)
    return np.array(indices, dtype=np.int8)
