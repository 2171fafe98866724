"""What a simulation says about each request and about the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import kernels
from sched_env.engine.output import ITL_BINS, ITL_FIRST_S, ITL_RATIO
from sched_env.engine.records import EVENT_PREEMPT
from sched_env.engine.world import World


@dataclass(frozen=True)
class SimulationResult:
    """The outcome of one trace under one policy.

    Attributes:
        requests: REQUEST (num_requests,), in trace order; times in seconds, NaN where the event
            never came. Requests that had not arrived when the run was cut off count as waiting,
            with the class, SLOs and prediction that the seed draws for them.
        span_s: From the first arrival to the last event.
        num_iterations: Batches run.
        num_decisions: Decisions asked of a learned policy; 0 under a heuristic.
        num_invalid_actions: Illegal ones among them.
        busy_s: Time in which a batch ran.
        kv_usage_mean: Share of the KV blocks in use, averaged over busy time.
        num_computed_tokens: Tokens computed, recomputed ones included.
        num_cached_tokens: Tokens not computed, because the prefix cache held them.
        itl_counts: int64 (bins,), inter-token latencies by bin.
        events: EVENT (num_events,) in order of time, or ``None`` if not recorded.
        num_steps_beyond_table: Batches further beyond the measured steps of a table than its
            margin, whose times are extrapolated.
    """

    requests: NDArray[Any]
    span_s: float
    num_iterations: int
    num_decisions: int
    num_invalid_actions: int
    busy_s: float
    kv_usage_mean: float
    num_computed_tokens: int
    num_cached_tokens: int
    itl_counts: NDArray[np.int64] = field(repr=False)
    events: NDArray[Any] | None = field(default=None, repr=False)
    num_steps_beyond_table: int = 0

    @property
    def itl_edges_s(self) -> NDArray[np.float64]:
        """Return the edges of the bins of ``itl_counts``, float64 (bins + 1,), 1 % apart."""
        edges = np.array(ITL_FIRST_S * ITL_RATIO ** np.arange(ITL_BINS + 1), np.float64)
        edges[0] = 0.0
        return edges

    @property
    def preemptions(self) -> NDArray[Any] | None:
        """Return one EVENT for each preemption: tokens lost, blocks given back, how often."""
        if self.events is None:
            return None
        return self.events[self.events["kind"] == EVENT_PREEMPT]


def read_result(
    world: World, index: int, num_requests: int, num_decisions: int, num_invalid_actions: int
) -> SimulationResult:
    """Collect the result of server ``index``, wherever its live requests are held.

    The table of requests is the world's own, up to date: a world that is to serve again has to be
    asked for a copy of it.
    """
    state = world.state[index]
    requests = world.requests[index, :num_requests].view(np.ndarray)
    for part in ("front", "admitted", "running"):
        for request in world.live(index, part):
            requests[request["row"]] = request
    if state["next_row"] < num_requests:
        kernels.fill_unseen(world.address, index, num_requests)
    events = world.events(index) if world.arrays.events.shape[1] > 0 else None
    busy_s = float(state["busy_s"])
    pool_seconds = busy_s * float(state["num_blocks"])
    first_s = float(requests["arrival_time_s"][0]) if num_requests else 0.0
    return SimulationResult(
        requests=requests,
        span_s=max(float(state["clock_s"]) - first_s, 0.0),
        num_iterations=int(state["iteration"]),
        num_decisions=num_decisions,
        num_invalid_actions=num_invalid_actions,
        busy_s=busy_s,
        kv_usage_mean=float(state["kv_block_seconds"]) / pool_seconds if pool_seconds else 0.0,
        num_computed_tokens=int(state["num_computed_tokens"]),
        num_cached_tokens=int(state["num_cached_tokens"]),
        itl_counts=_itl_counts(world, index),
        events=events,
        num_steps_beyond_table=int(state["num_steps_beyond_table"]),
    )


def _itl_counts(world: World, index: int) -> NDArray[np.int64]:
    counts = world.itl_counts[index]
    return counts.copy() if counts.size else np.zeros(ITL_BINS, np.int64)
