"""Columns of a CSV file: read by pyarrow, and by the csv module where something is wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
from pyarrow import compute

from sched_env.errors import TraceError
from sched_env.workload.readers.column_source import ColumnSource
from sched_env.workload.readers.faults import shown
from sched_env.workload.readers.trace_file import TraceFile

pc: Any = compute  # its functions are made at import, where type checkers cannot see them
_COUNT = "^[0-9]{1,18}$"
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?$"


class CsvColumns(ColumnSource):
    """A CSV file with a header, or with given column names and no header.

    Columns are chosen by name. Any line ending is taken, and none is needed at the end; blank
    lines are passed over.
    """

    def __init__(self, file: TraceFile, names: Sequence[str] | None = None) -> None:
        """Read all columns as text.

        Raises:
            TraceError: no data row, a row with a wrong number of fields, or broken quotes.
        """
        self.name = file.name
        self._file = file
        self._has_header = names is None
        header = header_fields(file) if names is None else tuple(names)
        if len(set(header)) != len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise TraceError(f"{self.name}, line 1: column {twice!r} occurs twice; rename one")
        self.names = header
        self._table = self._read_fast() or self._read_checked()
        self.num_rows = self._table.num_rows
        if not self.num_rows:
            raise TraceError(
                f"{self.name} has a header and no data row; give a trace with requests"
            )

    def values(self, column: str) -> Sequence[object]:
        """Return the cells of a column as text."""
        return self._table[column].to_pylist()

    def text(self, column: str) -> pa.ChunkedArray:
        """Return the cells of a column as an Arrow array of strings without outer blanks."""
        return pc.utf8_trim_whitespace(self._table[column])

    def place(self, row: int) -> str:
        """Return the line on which a row ends."""
        return f"line {self._lines[row]}"

    def whole_numbers(
        self, column: str, *, maximum: int, empty: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Return a column of whole numbers; see ``ColumnSource``."""
        text = self.text(column)
        if pc.all(pc.match_substring_regex(text, _COUNT)).as_py():
            numbers = pc.cast(text, pa.int64()).to_numpy()
            if np.all(numbers <= maximum):
                return numbers
        return super().whole_numbers(column, maximum=maximum, empty=empty)

    def numbers(
        self, column: str, *, empty: float | None = None, wanted: str = "a finite number"
    ) -> npt.NDArray[np.float64]:
        """Return a column of finite numbers; see ``ColumnSource``."""
        text = self.text(column)
        if pc.all(pc.match_substring_regex(text, _DECIMAL)).as_py():
            numbers = pc.cast(text, pa.float64()).to_numpy()
            if np.all(np.isfinite(numbers)):
                return numbers
        return super().numbers(column, empty=empty, wanted=wanted)

    def _read_fast(self) -> pa.Table | None:
        """Return the table, or ``None`` where the careful reader has to look."""
        data = self._file.data
        if b'"' in data:
            return None
        if self._has_header:
            start = len(data) - len(data.lstrip(b"\r\n"))
            ends = [end for mark in (b"\n", b"\r") if (end := data.find(mark, start)) >= 0]
            data = data[min(ends) :] if ends else b""
        if not data.strip():
            return pa.table({name: pa.array([], pa.string()) for name in self.names})
        try:
            return pyarrow.csv.read_csv(
                pa.py_buffer(data),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, column_names=list(self.names)
                ),
                parse_options=pyarrow.csv.ParseOptions(quote_char=False),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()), strings_can_be_null=False
                ),
            )
        except pa.ArrowException:
            return None

    def _read_checked(self) -> pa.Table:
        rows = [fields for _, fields in self._records()]
        columns = zip(*rows, strict=True) if rows else [()] * len(self.names)
        return pa.table(
            {
                name: pa.array(cells, pa.string())
                for name, cells in zip(self.names, columns, strict=True)
            }
        )

    @cached_property
    def _lines(self) -> list[int]:
        return [line for line, _ in self._records()]

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield (line number, fields) of each data row.

        Raises:
            TraceError: naming the line that is not a row of this file.
        """
        reader = csv.reader(io.StringIO(self._file.text(), newline=""), strict=True)
        is_header = self._has_header
        try:
            for fields in reader:
                if not fields:
                    continue
                if is_header:
                    is_header = False
                    continue
                if len(fields) != len(self.names):
                    raise TraceError(
                        f"{self.name}, line {reader.line_num}: {len(fields)} fields where "
                        f"{len(self.names)} are wanted ({shown(','.join(fields))}); correct or "
                        "delete the line"
                    )
                yield reader.line_num, fields
        except csv.Error as error:
            raise TraceError(
                f"{self.name}, line {reader.line_num}: not CSV ({error}); correct the line"
            ) from error


def header_fields(file: TraceFile) -> tuple[str, ...]:
    """Return the fields of the first line that is not blank, without outer blanks.

    Raises:
        TraceError: the line is not CSV or not UTF-8.
    """
    data = file.data.lstrip(b"\r\n")
    line = data[: 2**17].splitlines()[0]
    try:
        fields = next(csv.reader([line.decode("utf-8")], strict=True), [])
    except (csv.Error, UnicodeDecodeError) as error:
        file.text()
        raise TraceError(f"{file.name}, line 1: not CSV ({error}); correct the line") from error
    return tuple(field.strip() for field in fields)
