"""The outcome table: what a simulation says about each injected request.

Metrics are pure functions over this structured array, one row a request, in trace order. Times are
seconds on one clock (float64), NaN where the event never happened.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sched_env.engine.records import FINISHED
from sched_env.metrics.request_times import ended_complete

RequestOutcomes = npt.NDArray[np.void]
"""The outcome table: REQUEST of `sched_env.engine.records` (num_requests,)."""

Floats = npt.NDArray[np.float64]
"""A float64 array, mostly one value a request (num_requests,)."""

Flags = npt.NDArray[np.bool_]
"""A bool array, one value a request (num_requests,)."""


class Outcome(Protocol):
    """What the metrics read of a finished simulation."""

    @property
    def requests(self) -> RequestOutcomes:
        """The outcome table, one row for each injected request."""
        ...

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last event."""
        ...

    @property
    def num_iterations(self) -> int:
        """Batches that the server ran."""
        ...

    @property
    def num_decisions(self) -> int:
        """Decisions asked of a learned policy; 0 under a heuristic."""
        ...

    @property
    def num_invalid_actions(self) -> int:
        """Decisions that were illegal, and replaced."""
        ...

    @property
    def num_computed_tokens(self) -> int:
        """Tokens computed, those computed again included."""
        ...

    @property
    def num_cached_tokens(self) -> int:
        """Tokens that the prefix cache held, so that they were not computed."""
        ...

    @property
    def kv_usage_mean(self) -> float:
        """Mean share of KV blocks in use while batches ran, 0 to 1."""
        ...

    @property
    def itl_counts(self) -> npt.NDArray[Any]:
        """Number of gaps between tokens in each histogram bin (num_bins,)."""
        ...

    @property
    def itl_edges_s(self) -> Floats:
        """Edges of the histogram bins in seconds (num_bins + 1,)."""
        ...


def is_finished(requests: RequestOutcomes) -> Flags:
    """Flag the requests that ended with output, cut short or not."""
    return requests["status"] == FINISHED


def is_complete(requests: RequestOutcomes) -> Flags:
    """Flag the requests that ended with all the output that was asked for."""
    return ended_complete(requests["status"], requests["finish_reason"])
