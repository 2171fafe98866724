"""Write a request table in the plain format: CSV, JSON lines or Parquet.

Nothing a table holds is lost: prefix ids go along in all three (in CSV as numbers separated by
spaces), and floats are written so that reading gives the same value.
"""

from __future__ import annotations

import csv
import json
import uuid
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sched_env.errors import TraceError
from sched_env.workload.table import RequestTable

SUFFIXES = (".csv", ".jsonl", ".parquet")


def write_trace(table: RequestTable, path: str | PathLike[str]) -> Path:
    """Write a table; the suffix of ``path`` chooses the container. Returns the path.

    The file appears whole or not at all. Columns in which every row has the default are left out.

    Raises:
        TraceError: another suffix, an empty table, or a place that cannot be written.
    """
    target = Path(path)
    check_trace_path(target)
    writers = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
    if not len(table):
        raise TraceError(f"{table.source.name} has no request to write; choose a wider window")
    partial = target.with_name(f".{uuid.uuid4().hex}.partial")  # short, whatever the target's name
    try:
        writers[target.suffix](plain_columns(table), partial)
        partial.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        partial.unlink(missing_ok=True)
    return target


def check_trace_path(path: Path) -> None:
    """Refuse a path that no trace can be written to.

    Raises:
        TraceError: it is a folder, lies in none, is too long, or has another suffix.
    """
    try:
        is_folder, is_in_folder = path.is_dir(), path.parent.is_dir()
    except OSError as error:
        raise _unwritable(path, error) from error
    if is_folder:
        raise TraceError(f"{path} is a folder: name a file, as in {path / 'trace.csv'}")
    if path.suffix not in SUFFIXES:
        raise TraceError(f"{path}: write a trace to a name in {', '.join(SUFFIXES)}")
    if not is_in_folder:
        raise TraceError(f"{path} cannot be written: there is no folder {path.parent}")


def _unwritable(path: Path, error: OSError) -> TraceError:
    reason = error.strerror or error
    return TraceError(f"{path} cannot be written: {reason}; choose another path")


def plain_columns(table: RequestTable) -> dict[str, list[Any]]:
    """Return the columns of the plain format as lists; ``None`` = an empty cell."""
    columns: dict[str, list[Any]] = {
        "arrival_time_s": table.arrival_time_s.tolist(),
        "prompt_tokens": table.prompt_tokens.tolist(),
        "output_tokens": table.output_tokens.tolist(),
    }
    if np.any(table.priority != 0):
        columns["priority"] = table.priority.tolist()
    if np.any(table.service_class >= 0):
        columns["service_class"] = [i if i >= 0 else None for i in table.service_class.tolist()]
    predicted = table.predicted_output_tokens
    if not np.all(np.isnan(predicted)):
        columns["predicted_output_tokens"] = [v if v == v else None for v in predicted.tolist()]
    if np.any(table.failed):
        columns["failed"] = table.failed.astype(int).tolist()
    if table.hash_ids is not None:
        columns["hash_ids"] = [table.hash_ids.row(i).tolist() for i in range(len(table))]
        columns["block_tokens"] = [table.hash_ids.block_tokens] * len(table)
    return columns


def _write_csv(columns: dict[str, list[Any]], path: Path) -> None:
    if "hash_ids" in columns:
        texts = [" ".join(map(str, ids)) for ids in columns["hash_ids"]]
        columns = {**columns, "hash_ids": texts}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_jsonl(columns: dict[str, list[Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for values in zip(*columns.values(), strict=True):
            row = {k: v for k, v in zip(columns, values, strict=True) if v is not None}
            file.write(json.dumps(row) + "\n")


def _write_parquet(columns: dict[str, list[Any]], path: Path) -> None:
    import pyarrow as pa  # environments write no trace
    import pyarrow.parquet

    types = {"hash_ids": pa.list_(pa.int64())}
    table = pa.table({k: pa.array(v, types.get(k)) for k, v in columns.items()})
    pyarrow.parquet.write_table(table, path)
