"""Columns of a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet

from sched_env.errors import TraceError
from sched_env.workload.readers.column_source import ColumnSource
from sched_env.workload.readers.trace_file import TraceFile

PARQUET_MAGIC = b"PAR1"


class ParquetColumns(ColumnSource):
    """A Parquet file; its rows are counted from 1 in messages."""

    def __init__(self, file: TraceFile) -> None:
        """Read all columns.

        Raises:
            TraceError: the file is damaged or has no row.
        """
        self.name = file.name
        try:
            table = pyarrow.parquet.read_table(pa.BufferReader(file.data), use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            raise TraceError(f"{self.name}: damaged parquet ({reason}); write it again") from error
        self._table = table
        self.names = tuple(table.column_names)
        self.num_rows = table.num_rows
        if not self.num_rows:
            raise TraceError(f"{self.name} has no row; give a trace with requests")

    def values(self, column: str) -> Sequence[object]:
        """Return the values of a column, ``None`` where null."""
        try:
            return self._table[column].to_pylist()
        except (KeyError, ValueError, pa.ArrowException) as error:
            raise TraceError(f"{self.name}, column {column}: {error}; write it again") from error

    def place(self, row: int) -> str:
        """Return the number of a row."""
        return f"row {row + 1}"
