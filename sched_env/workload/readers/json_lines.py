"""Columns of a JSON-lines file: one object a line, its keys the columns."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sched_env.errors import TraceError
from sched_env.workload.readers.column_source import ColumnSource
from sched_env.workload.readers.trace_file import TraceFile


class JsonLines(ColumnSource):
    """A JSON-lines file; the columns are the keys of all rows."""

    def __init__(self, file: TraceFile) -> None:
        """Parse every line.

        Raises:
            TraceError: naming the first line that is not one JSON object.
        """
        self.name = file.name
        self._rows: list[dict[str, object]] = []
        self._lines: list[int] = []
        names: dict[str, None] = {}
        for line, text in enumerate(file.text().split("\n"), start=1):
            if text.strip():
                row = parse_object(file.name, line, text)
                names.update(dict.fromkeys(row))
                self._rows.append(row)
                self._lines.append(line)
        self.names = tuple(names)
        self.num_rows = len(self._rows)

    def values(self, column: str) -> Sequence[object]:
        """Return the values of a key, ``None`` where a row lacks it."""
        return [row.get(column) for row in self._rows]

    def place(self, row: int) -> str:
        """Return the line of a row."""
        return f"line {self._lines[row]}"


def parse_object(name: str, line: int, text: str) -> dict[str, object]:
    """Return one line as a JSON object.

    Raises:
        TraceError: not JSON, not an object, not finite, or nested too deeply.
    """
    where = f"{name}, line {line}"
    try:
        row = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{where}: not JSON ({error.msg} at character {error.colno}); write one object a line"
        ) from error
    except RecursionError as error:
        raise TraceError(f"{where}: nested too deeply; write one flat object a line") from error
    except ValueError as error:
        raise TraceError(f"{where}: {error}; write finite numbers of usual size") from error
    if not isinstance(row, dict):
        kind = type(row).__name__
        raise TraceError(f"{where}: a JSON {kind}, not an object; write one object a line")
    return row


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")
