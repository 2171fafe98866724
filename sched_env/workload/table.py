"""The request table: what arrives, as columns with units in their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError, UnknownNameError
from sched_env.workload.columns import frozen_column
from sched_env.workload.hash_ids import HashIds
from sched_env.workload.source import TraceSource

SplitName = Literal["train", "validation", "test", "all"]
SPLITS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"train": (0.0, 0.6), "validation": (0.6, 0.7), "test": (0.7, 1.0), "all": (0.0, 1.0)}
)
"""Each split's part of the table's time span, as fractions (start, end)."""


@dataclass(frozen=True, eq=False)
class RequestTable:
    """Requests as read-only columns, one row per request, sorted by arrival.

    Rows with equal arrival keep the order of the file.

    Attributes:
        arrival_time_s: float64 (n,), seconds; 0 at the first arrival after reading.
        prompt_tokens: int32 (n,), >= 1.
        output_tokens: int32 (n,), >= 1, the true number of output tokens.
        priority: float64 (n,), larger is served first; zeros where the trace has none.
        service_class: int8 (n,), index in the service classes; -1 = drawn per seed.
        predicted_output_tokens: float64 (n,), NaN = made per seed by the length prediction.
        failed: bool (n,), True where the traced system failed the request and it was kept on
            demand; its zero token counts stand as 1.
        hash_ids: prefix block ids, or ``None`` where the trace has none (no sharing).
        source: where the rows come from.
    """

    arrival_time_s: npt.NDArray[np.float64]
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    priority: npt.NDArray[np.float64]
    service_class: npt.NDArray[np.int8]
    predicted_output_tokens: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]
    hash_ids: HashIds | None = None
    source: TraceSource = field(default_factory=TraceSource)

    def __post_init__(self) -> None:
        """Check every column and make it read-only.

        Raises:
            TraceError: unequal lengths, unsorted or infinite times, counts outside 1..2^31 - 1.
        """
        for name, dtype in COLUMN_DTYPES.items():
            object.__setattr__(self, name, frozen_column(name, getattr(self, name), dtype))
        num_rows = len(self.arrival_time_s)
        for name in COLUMN_DTYPES:
            if len(getattr(self, name)) != num_rows:
                message = f"{name} has {len(getattr(self, name))} rows, arrival_time_s {num_rows}"
                raise TraceError(f"{message}; give columns of one length")
        if self.hash_ids is not None and len(self.hash_ids) != num_rows:
            raise TraceError(f"hash_ids has {len(self.hash_ids)} rows, arrival_time_s {num_rows}")
        if not np.all(np.isfinite(self.arrival_time_s)) or np.any(self.arrival_time_s < 0):
            raise TraceError("arrival_time_s: every time must be finite and >= 0 seconds")
        if np.any(np.diff(self.arrival_time_s) < 0):
            raise TraceError("arrival_time_s: rows must be sorted by time; sort them stably")
        for name in ("prompt_tokens", "output_tokens"):
            if np.any(getattr(self, name) < 1):
                raise TraceError(f"{name}: every count must be >= 1; drop the other rows")
        if not np.all(np.isfinite(self.priority)):
            raise TraceError("priority: every value must be finite")
        if np.any(self.service_class < -1):
            raise TraceError("service_class: every value must be >= -1 (-1 = drawn per seed)")
        if np.any(self.predicted_output_tokens <= 0) or np.any(
            np.isinf(self.predicted_output_tokens)
        ):
            raise TraceError("predicted_output_tokens: every value must be > 0 and finite, or NaN")

    @classmethod
    def from_columns(
        cls,
        *,
        arrival_time_s: npt.ArrayLike,
        prompt_tokens: npt.ArrayLike,
        output_tokens: npt.ArrayLike,
        priority: npt.ArrayLike | None = None,
        service_class: npt.ArrayLike | None = None,
        predicted_output_tokens: npt.ArrayLike | None = None,
        failed: npt.ArrayLike | None = None,
        hash_ids: HashIds | None = None,
        source: TraceSource | None = None,
    ) -> Self:
        """Build a table from arrays or lists; a column left out gets its default.

        Raises:
            TraceError: as for the constructor; rows are not sorted here.
        """
        times = np.asarray(arrival_time_s, np.float64)
        n = len(times) if times.ndim else 0

        def given(values: npt.ArrayLike | None, default: float) -> Any:
            return np.full(n, default) if values is None else values

        return cls(
            arrival_time_s=times,
            prompt_tokens=frozen_column("prompt_tokens", prompt_tokens, np.int32),
            output_tokens=frozen_column("output_tokens", output_tokens, np.int32),
            priority=given(priority, 0.0),
            service_class=given(service_class, -1),
            predicted_output_tokens=given(predicted_output_tokens, np.nan),
            failed=given(failed, False),
            hash_ids=hash_ids,
            source=source or TraceSource(),
        )

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_time_s)

    @property
    def span_s(self) -> float:
        """Return the time from the first arrival to the last, in seconds."""
        return float(self.arrival_time_s[-1] - self.arrival_time_s[0]) if len(self) else 0.0

    @property
    def mean_rate_rps(self) -> float:
        """Return arrivals per second over the span: (n - 1) / span, NaN if the span is 0."""
        return (len(self) - 1) / self.span_s if self.span_s > 0 else float("nan")

    def equals(self, other: RequestTable) -> bool:
        """Return whether all columns and prefix ids agree (the sources may differ)."""
        for name in COLUMN_DTYPES:
            mine, theirs = getattr(self, name), getattr(other, name)
            if not np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f"):
                return False
        if self.hash_ids is None or other.hash_ids is None:
            return self.hash_ids is other.hash_ids
        return (
            self.hash_ids.block_tokens == other.hash_ids.block_tokens
            and np.array_equal(self.hash_ids.offsets, other.hash_ids.offsets)
            and np.array_equal(self.hash_ids.values, other.hash_ids.values)
        )

    def take(self, rows: npt.ArrayLike) -> RequestTable:
        """Return these rows, by boolean mask (n,) or by indices in increasing order.

        Times stay as they are.
        """
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_:
            if len(chosen) != len(self):
                raise TraceError(f"a mask of {len(chosen)} rows cannot choose from {len(self)}")
            chosen = np.flatnonzero(chosen)
        chosen = chosen.astype(np.int64)
        columns = {name: getattr(self, name)[chosen] for name in COLUMN_DTYPES}
        hash_ids = None if self.hash_ids is None else self.hash_ids.take(chosen)
        return dataclasses.replace(self, **columns, hash_ids=hash_ids)

    def rebased(self) -> RequestTable:
        """Return the table with the first arrival at 0."""
        if not len(self) or self.arrival_time_s[0] == 0:
            return self
        return dataclasses.replace(
            self, arrival_time_s=self.arrival_time_s - self.arrival_time_s[0]
        )

    def window(self, start_s: float, end_s: float) -> RequestTable:
        """Return the requests with ``start_s <= arrival < end_s``, the first of them at 0.

        The result may be empty.

        Raises:
            TraceError: the window ends before it starts.
        """
        if not end_s > start_s:
            raise TraceError(f"window {start_s}..{end_s} s is empty; give an end after the start")
        first, last = np.searchsorted(self.arrival_time_s, [start_s, end_s])
        return self.take(np.arange(first, last)).rebased()

    def with_rate_scale(self, factor: float) -> RequestTable:
        """Return the table with arrivals ``factor`` times as fast.

        Intervals from the first arrival are divided by ``factor``; lengths stay.

        Raises:
            TraceError: the factor is not a finite number above 0.
        """
        if not (np.isfinite(factor) and factor > 0):
            raise TraceError(f"rate scale {factor} must be a finite number > 0")
        if not len(self):
            return self
        first = self.arrival_time_s[0]
        return dataclasses.replace(
            self, arrival_time_s=first + (self.arrival_time_s - first) / factor
        )

    def split(self, name: SplitName | str) -> RequestTable:
        """Return one part by time of the span: train 0-60 %, validation 60-70 %, test 70-100 %.

        The first arrival of the part is at 0; ``all`` is the whole table.

        Raises:
            UnknownNameError: no such split.
            TraceError: nothing arrives in that part, or all arrive at once.
        """
        if not isinstance(name, str) or name not in SPLITS:
            raise UnknownNameError("split", str(name), SPLITS)
        if name == "all":
            return self.rebased()
        if len(self) and self.span_s == 0.0:
            raise TraceError(
                f"{self.source.name}: all requests arrive at once, so there is no {name} part by "
                "time; use a longer trace or --split all"
            )
        start, end = (fraction * self.span_s for fraction in SPLITS[name])
        since_first = self.arrival_time_s - (self.arrival_time_s[0] if len(self) else 0.0)
        chosen = (since_first >= start) & ((since_first < end) | (SPLITS[name][1] == 1.0))
        if not np.any(chosen):
            raise TraceError(
                f"{self.source.name}: no request arrives in the {name} part "
                f"({start:g} to {end:g} s of {self.span_s:g} s); use a longer trace or --split all"
            )
        return self.take(chosen).rebased()

    def with_columns(self, **columns: Any) -> RequestTable:
        """Return the table with these columns, ``hash_ids`` or ``source`` replaced."""
        return dataclasses.replace(self, **columns)


COLUMN_DTYPES: Mapping[str, Any] = MappingProxyType(
    {
        "arrival_time_s": np.float64,
        "prompt_tokens": np.int32,
        "output_tokens": np.int32,
        "priority": np.float64,
        "service_class": np.int8,
        "predicted_output_tokens": np.float64,
        "failed": np.bool_,
    }
)
"""Name and dtype of each column of a ``RequestTable``, in order."""
