"""Columns of a trace file, whatever its container, checked value by value.

CSV, JSON lines and Parquet each give their columns through ``ColumnSource``; a format then asks
for whole numbers, numbers or lists of ids and need not know the container. Each container may
convert a sound column fast; the checks here decide what is sound, and find the first bad row.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError, did_you_mean
from sched_env.workload.columns import MAX_TOKENS
from sched_env.workload.readers.faults import fault, shown

MAX_TICKS = 2**62
"""The largest time stamp taken, in ticks of the trace's clock."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_T = TypeVar("_T")


class ColumnSource(ABC):
    """Columns of one trace file.

    Attributes:
        name: file name for messages.
        names: column names in file order.
        num_rows: number of data rows.
    """

    name: str
    names: tuple[str, ...]
    num_rows: int

    @abstractmethod
    def values(self, column: str) -> Sequence[object]:
        """Return the raw values of a column, ``None`` where a row lacks it."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Return where a row stands in the file, such as ``line 17``."""

    def has(self, column: str) -> bool:
        """Return whether the file has this column."""
        return column in self.names

    def require(self, *columns: str) -> None:
        """Check that these columns exist.

        Raises:
            TraceError: naming the missing column, the nearest one and what the file has.
        """
        for column in columns:
            if not self.has(column):
                found = ", ".join(shown(name)[1:-1] for name in self.names[:12])
                raise TraceError(
                    f"{self.name}: column {column!r} is missing."
                    f"{did_you_mean(column, self.names)} Found: {found}; "
                    "rename the column or give the file's format"
                )

    def fault(self, row: int, column: str, value: object, wanted: str) -> TraceError:
        """Return the error for one value that is not what is wanted."""
        found = "no value, where there has to be" if value is None else f"{shown(value)} is not"
        return fault(self.name, self.place(row), column, f"{found} {wanted}")

    def token_counts(self, column: str) -> npt.NDArray[np.int64]:
        """Return a column of whole numbers from 0 to 2^31 - 1, int64 (n,)."""
        return self.whole_numbers(column, maximum=MAX_TOKENS)

    def whole_numbers(
        self, column: str, *, maximum: int, empty: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Return a column of whole numbers from 0 to ``maximum``, int64 (n,).

        Args:
            column: its name.
            maximum: largest value allowed.
            empty: value of an empty cell; ``None`` makes it a fault.

        Raises:
            TraceError: naming the first row whose value is something else.
        """
        limit = f" and <= {maximum}" if maximum < MAX_TICKS else ""
        wanted = f"a whole number >= 0{limit}"

        def convert(value: object) -> int | None:
            number = empty if is_empty(value) else whole_number(value)
            in_range = number is not None and (0 <= number <= maximum or number == empty)
            return number if in_range else None

        numbers = self._converted(column, convert, wanted)
        return np.array(numbers, dtype=np.int64)

    def numbers(
        self, column: str, *, empty: float | None = None, wanted: str = "a finite number"
    ) -> npt.NDArray[np.float64]:
        """Return a column of finite numbers, float64 (n,); arguments as above.

        Raises:
            TraceError: naming the first row whose value is something else.
        """

        def convert(value: object) -> float | None:
            return empty if is_empty(value) else finite_number(value)

        return np.array(self._converted(column, convert, wanted), dtype=np.float64)

    def times(self, column: str) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
        """Return time stamps in ticks: int64 (n,) if all are whole, else float64 (n,).

        Raises:
            TraceError: naming the first row that is not a number >= 0.
        """
        wanted = "a time >= 0 in the unit of this format"
        numbers = self.numbers(column, wanted=wanted)
        bad = np.flatnonzero((numbers < 0) | (numbers > MAX_TICKS))
        if len(bad):
            raise self.fault(int(bad[0]), column, self.values(column)[bad[0]], wanted)
        whole = bool(np.all(numbers == np.floor(numbers)))
        if not whole:
            return numbers
        if numbers.max(initial=0.0) < 2**53:  # a float holds every whole number up to here
            return numbers.astype(np.int64)
        return self.whole_numbers(column, maximum=MAX_TICKS)

    def id_lists(self, column: str) -> list[list[int]]:
        """Return a column of lists of whole numbers in the range of int64.

        Raises:
            TraceError: naming the first row whose value is something else.
        """
        return self._converted(column, id_list, "a list of whole numbers (int64)")

    def _converted(
        self, column: str, convert: Callable[[object], _T | None], wanted: str
    ) -> list[_T]:
        converted: list[_T] = []
        for row, value in enumerate(self.values(column)):
            result = convert(value)
            if result is None:
                raise self.fault(row, column, value, wanted)
            converted.append(result)
        return converted


def is_empty(value: object) -> bool:
    """Return whether a cell holds nothing: absent, null, or blank text."""
    return value is None or (isinstance(value, str) and not value.strip())


def whole_number(value: object) -> int | None:
    """Return a cell as an int (``12``, ``"12"``, ``12.0``, ``"12.0"``), else ``None``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) else None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    return None


def finite_number(value: object) -> float | None:
    """Return a cell as a finite float, else ``None``."""
    if isinstance(value, str):
        text = value.strip()
        number = float(text) if len(text) < 400 and _NUMBER.fullmatch(text) else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
    else:
        return None
    return number if math.isfinite(number) else None


def id_list(value: object) -> list[int] | None:
    """Return a cell as a list of int64 ids (a list, or numbers with spaces), else ``None``."""
    if value is None:
        return None
    parts = value.split() if isinstance(value, str) else value
    if not isinstance(parts, list):
        return None
    ids: list[int] = []
    for part in parts:
        number = whole_number(part)
        if number is None or not -(2**63) <= number < 2**63:
            return None
        ids.append(number)
    return ids
