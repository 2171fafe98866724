"""Calendar time stamps as integer nanoseconds.

Traces write up to nine fraction digits, none at all when the fraction is zero, and a zone or not,
sometimes all in one column. ``strptime`` refuses seven digits and cutting them merges arrivals,
so stamps become integers here and floats only after the first has been subtracted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sched_env.errors import TraceError
from sched_env.workload.readers.csv_columns import CsvColumns, pc

_STAMP = re.compile(
    r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:?\d{2})?", re.ASCII
)
_PLAIN = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{1,9})?$"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_NS_PER_S = 1_000_000_000
_EARLIEST_S, _LATEST_S = 0, 9_000_000_000


def stamps_ns(source: CsvColumns, column: str) -> npt.NDArray[np.int64]:
    """Return a column of stamps as nanoseconds since 1970 in UTC, int64 (n,).

    ``2023-11-16 18:17:03.9799600``, ``2024-05-12 00:00:00+00:00`` and ``2024-10-15T12:00:00.269Z``
    are all taken; a stamp without zone counts as UTC.

    Raises:
        TraceError: naming the first row that is no such stamp.
    """
    text = pc.replace_substring_regex(source.text(column), r"(Z|[+-]00:?00)$", "")
    if pc.all(pc.match_substring_regex(text, _PLAIN)).as_py():
        try:
            numbers = pc.cast(pc.cast(text, pa.timestamp("ns")), pa.int64()).to_numpy()
        except pa.ArrowException:
            numbers = None
        if numbers is not None and np.all(numbers >= 0):
            return numbers
    return np.array(_checked(source, column), dtype=np.int64)


def _checked(source: CsvColumns, column: str) -> list[int]:
    numbers: list[int] = []
    for row, value in enumerate(source.values(column)):
        number = stamp_ns(str(value).strip())
        if number is None:
            raise _fault(source, row, column, value)
        numbers.append(number)
    return numbers


def _fault(source: CsvColumns, row: int, column: str, value: object) -> TraceError:
    return source.fault(row, column, value, "a date and time such as 2023-11-16 18:15:46.68")


def stamp_ns(text: str) -> int | None:
    """Return one stamp as nanoseconds since 1970 in UTC, or ``None`` if it is none."""
    match = _STAMP.fullmatch(text)
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=_zone(zone))
        seconds = (moment - _EPOCH) // _SECOND
    except (ValueError, OverflowError):
        return None
    if not _EARLIEST_S <= seconds <= _LATEST_S:
        return None
    return seconds * _NS_PER_S + int((fraction or "0").ljust(9, "0"))


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
