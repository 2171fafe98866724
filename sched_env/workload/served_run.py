"""The record of a real server's run: what arrived, and when each request was served.

A CSV file with one row a request, times in seconds on one clock:

| column | meaning |
|---|---|
| ``request`` | name of the request |
| ``arrival_s`` | when it entered the server's queue |
| ``prompt_tokens``, ``output_tokens`` | its lengths |
| ``scheduled_s`` | when it was first scheduled |
| ``first_token_s``, ``last_token_s`` | when its first and its last output token came |
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError
from sched_env.workload.readers.csv_columns import CsvColumns
from sched_env.workload.readers.trace_file import TraceFile
from sched_env.workload.source import TraceSource
from sched_env.workload.table import RequestTable

_TIMES = ("arrival_s", "scheduled_s", "first_token_s", "last_token_s")
COLUMNS = ("request", "prompt_tokens", "output_tokens", *_TIMES)

_Times = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ServedRun:
    """What a real server did, one row per request in order of arrival, the first at 0.

    Attributes:
        requests: Arrivals and lengths.
        names: Name of each request.
        first_scheduled_s: float64 (n,), when each was first scheduled.
        first_token_s: float64 (n,).
        last_token_s: float64 (n,).
    """

    requests: RequestTable
    names: tuple[str, ...]
    first_scheduled_s: _Times
    first_token_s: _Times
    last_token_s: _Times

    @property
    def makespan_s(self) -> float:
        """Return the time from the first arrival to the last token."""
        return float(self.last_token_s.max())


def read_served_run(path: str | Path) -> ServedRun:
    """Read the record of a run; rows may stand in any order.

    Raises:
        TraceError: The file cannot be read, lacks a column or has a wrong value; the message names
            the line.
    """
    file = TraceFile.load(Path(path))
    source = CsvColumns(file)
    source.require(*COLUMNS)
    counts = {name: source.token_counts(name) for name in ("prompt_tokens", "output_tokens")}
    times = {name: source.numbers(name, wanted="a time in seconds") for name in _TIMES}
    for name, values in counts.items():
        _refuse(source, name, values < 1, "1 or more")
    _refuse(source, "arrival_s", times["arrival_s"] < 0, "a time >= 0 in seconds")
    for earlier, later in itertools.pairwise(_TIMES):
        _refuse(source, later, times[later] < times[earlier], f"at or after {earlier}")
    order = np.argsort(times["arrival_s"], kind="stable")
    start_s = float(times["arrival_s"].min())
    names = [str(value).strip() for value in source.values("request")]
    ordered = {name: values[order] - start_s for name, values in times.items()}
    return ServedRun(
        requests=RequestTable.from_columns(
            arrival_time_s=ordered["arrival_s"],
            prompt_tokens=counts["prompt_tokens"][order],
            output_tokens=counts["output_tokens"][order],
            source=TraceSource(name=file.name),
        ),
        names=tuple(names[row] for row in order),
        first_scheduled_s=ordered["scheduled_s"],
        first_token_s=ordered["first_token_s"],
        last_token_s=ordered["last_token_s"],
    )


def _refuse(source: CsvColumns, column: str, wrong: npt.NDArray[np.bool_], wanted: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise _fault(source, int(rows[0]), column, wanted)


def _fault(source: CsvColumns, row: int, column: str, wanted: str) -> TraceError:
    return source.fault(row, column, source.values(column)[row], wanted)
