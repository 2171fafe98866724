"""The memory of N servers, and the compiled core's entries as methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import kernels, live
from sched_env.engine.allocation import (
    as_records,
    event_reserve,
    front_size,
    memory_of,
    num_buckets,
    num_known_blocks,
    num_looked_at,
    num_seats,
    num_table_entries,
    records_of,
    sized_by_capacity,
)
from sched_env.engine.crew import Crew
from sched_env.engine.layout import Layout
from sched_env.engine.outlet import NUM_RESULTS, Fresh, Outlet, ScalarOutlet
from sched_env.engine.output import ITL_BINS
from sched_env.engine.queue_records import LANE, MOST_LANES
from sched_env.engine.records import (
    BLOCK,
    EVENT,
    MOST_COUNTED_CLASSES,
    PREEMPTED,
    SEAT_PROGRESS,
    SERVER,
    TRACE,
    WAITING,
    Arrays,
)
from sched_env.engine.room import check_room
from sched_env.errors import ConfigError


class Key(Protocol):
    """An order of requests that the core can call."""

    @property
    def addresses(self) -> Any:
        """Return the key function's two addresses (see ``keycall``)."""
        ...

    @property
    def static(self) -> bool:
        """Tell whether waiting requests keep their order as time passes."""
        ...

    @property
    def lane_addresses(self) -> Any:
        """Return the two addresses of the function that names a request's lane, or ``None``."""
        ...

    @property
    def counts_classes(self) -> bool:
        """Tell whether the order depends on what each service class has been served."""
        ...


class World:
    """N servers that share a trace and a step-time model.

    Args:
        num_servers: N.
        settings: SERVER fields that are the same for all servers (budgets, rules, episodes).
        key: Order of the waiting requests.
        cost: COST (1,).
        classes: SERVICE_CLASS (num_classes,).
        trace: TRACE (num_trace_rows,).
        segments: SEGMENT (num_segments,), the pieces that episodes are taken from.
        row_capacity: Most requests of one run or episode.
        num_events: Room for events that may recur (admissions and preemptions); 0: no log.
        count_itl: Whether to count inter-token latencies.
        hash_ids: int64, ids of the content of the trace's prompts, for prefix caching.

    Attributes:
        key: Order of the waiting requests.
        executor: What runs the batches of a live server.
        crew: Threads that share the servers of a step; ``None``: one thread takes all.
        num_servers: N.
        address: Where compiled code finds the servers: the address of a MEMORY record.

    Raises:
        ConfigError: The machine's memory cannot hold them, or the key counts more service classes
            than there is room for.
    """

    def __init__(
        self,
        num_servers: int,
        settings: Mapping[str, float],
        key: Key,
        *,
        cost: NDArray[Any],
        classes: NDArray[Any],
        trace: NDArray[Any],
        segments: NDArray[Any],
        row_capacity: int,
        num_events: int = 0,
        count_itl: bool = False,
        hash_ids: NDArray[np.int64] | None = None,
    ) -> None:
        check_room(num_servers, settings, row_capacity)
        state = records_of(num_servers, SERVER)
        for name, value in settings.items():
            state[name] = value
        first = state[0]
        state["num_looked_at"] = num_looked_at(first)
        state["row_capacity"] = row_capacity
        state["seat_capacity"] = num_seats(first, row_capacity)
        state["front_size"] = front_size(first)
        state["static_order"] = key.static
        state["counts_classes"] = key.counts_classes
        state["may_have_lanes"] = _may_have_lanes(first, key)
        state["event_reserve"] = event_reserve(first)
        if key.counts_classes and len(classes) > MOST_COUNTED_CLASSES:
            raise ConfigError(
                f"{len(classes)} service classes are too many for a policy that counts what each "
                f"is served: configure {MOST_COUNTED_CLASSES} at most, or take another policy"
            )
        self.key = key
        self.executor: live.BatchExecutor | None = None
        self.crew: Crew | None = None
        self._num_hash_ids = 0 if hash_ids is None else len(hash_ids)
        self._layout = Layout(
            int(first["num_waiting_slots"]),
            int(first["num_running_slots"]),
            bool(first["privileged"]),
        )
        capacity = num_events + int(first["event_reserve"]) if num_events > 0 else 0
        self._num_bins = ITL_BINS if count_itl else 0
        state["num_buckets"] = num_buckets(first)
        self.arrays = Arrays(
            state=state,
            cost=as_records(cost),
            classes=as_records(classes),
            trace=as_records(trace),
            segments=as_records(segments),
            lanes=records_of((num_servers, MOST_LANES * int(first["may_have_lanes"])), LANE),
            events=records_of((num_servers, capacity), EVENT),
            blocks=records_of((num_servers, num_known_blocks(first)), BLOCK),
            tables=np.zeros((num_servers, num_table_entries(first)), np.int64),
            hash_ids=np.zeros(0, np.int64) if hash_ids is None else hash_ids,
            **sized_by_capacity(num_servers, first, self._num_bins),
        )

    @property
    def arrays(self) -> Arrays:
        """Return the memory of the servers; a new one takes its place where it is set."""
        return self._arrays

    @arrays.setter
    def arrays(self, arrays: Arrays) -> None:
        self._arrays = arrays
        lane_addresses = self.key.lane_addresses or (0, 0)
        self._memory = memory_of(arrays, self._num_bins, self.key.addresses, lane_addresses)
        self.address = int(self._memory.ctypes.data)
        self.num_servers = len(arrays.state)

    @property
    def layout(self) -> Layout:
        """Return what observations and actions mean."""
        return self._layout

    @property
    def state(self) -> NDArray[Any]:
        """Return the SERVER records (N,)."""
        return self.arrays.state

    @property
    def row_capacity(self) -> int:
        """Return how many requests fit in the table."""
        return int(self.state[0]["row_capacity"])

    @property
    def requests(self) -> NDArray[Any]:
        """Return the tables of requests, REQUEST (N, row_capacity)."""
        return self.arrays.requests

    @property
    def itl_counts(self) -> NDArray[np.int64]:
        """Return the counts of inter-token latencies, int64 (N, bins)."""
        return self.arrays.scratch[:, self.arrays.scratch.shape[1] - self._num_bins :]

    def block_tables(self, index: int) -> NDArray[np.int64]:
        """Return the blocks of each request by its table, int64 (seats, num_blocks)."""
        seats, num_blocks = int(self.state[0]["seat_capacity"]), int(self.state[0]["num_blocks"])
        count = seats * num_blocks if self.arrays.tables.shape[1] else 0
        tables = self.arrays.tables[index, self.arrays.tables.shape[1] - count :]
        return tables.reshape(-1, num_blocks)

    def seats(self, index: int) -> NDArray[Any]:
        """Return the running requests in batch order, SEAT (num_running,), a view."""
        kernels.settle_seats(self.address, index)
        return self.arrays.seats[index, : int(self.state[index]["num_running"])]

    def cohort(self, index: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the cohort as it lies in memory; see ``cohort.py``.

        Returns:
            Its seats, SEAT (cohort_size,), and the ring of who needs a block for each of the next
            tokens, int64 (block_size,): views.
        """
        state = self.state[index]
        first, size = int(state["seat_capacity"]), int(state["block_size"])
        growth = self.arrays.scratch[index, first : first + size]
        return self.arrays.seats[index, : int(state["cohort_size"])], growth

    def front(self, index: int) -> NDArray[Any]:
        """Return the best of the waiting requests in service order, WAITER (num_front,), copied."""
        return self.arrays.front[index][self.places(index)["cell"]]

    def places(self, index: int) -> NDArray[Any]:
        """Return what decisions look at of the same requests, PLACE (num_front,), a view."""
        return self.arrays.order[index, : int(self.state[index]["num_front"])]

    def live(self, index: int, part: str) -> NDArray[Any]:
        """Return the requests in ``front``, ``admitted`` or ``running``, REQUEST, copied."""
        state = self.state[index]
        if part == "front":
            return self.requests[index][self.front(index)["row"]]
        if part == "admitted":
            rows = self.arrays.scratch[index, : int(state["num_admitted"])]
            return self.requests[index][rows]
        seats = self.seats(index)
        requests = self.requests[index][seats["row"]]
        for name in SEAT_PROGRESS:
            requests[name] = seats[name]
        return requests

    def waiting_rows(self, index: int) -> list[int]:
        """Return the rows of the waiting requests in service order; with lanes, only the first."""
        behind = self.arrays.heaps[index, : int(self.state[index]["num_backlog"])]
        order = np.lexsort((behind["tie"], behind["second_key"], behind["key"]))
        status = self.requests[index]["status"]
        rows = [int(behind["row"][place]) for place in order] + self._rows_in_lanes(index)
        waiting = [row for row in rows if status[row] in (WAITING, PREEMPTED)]
        return [*self.front(index)["row"].tolist(), *waiting]

    def _rows_in_lanes(self, index: int) -> list[int]:
        """Return the rows in lanes, lane after lane, those that have ended included."""
        rows, state = [], self.state[index]
        for lane in self.arrays.lanes[index, : int(state["num_lanes"]) * int(state["has_lanes"])]:
            row = int(lane["first"])
            while row >= 0:
                rows.append(row)
                row = int(self.arrays.heaps[index, row]["row"])
        return rows

    def find(self, index: int, row: int) -> Any:
        """Return the record of a request as it stands."""
        running = self.live(index, "running")
        places = np.flatnonzero(running["row"] == row)
        return running[places[0]] if places.size else self.requests[index, row]

    def scheduled_tokens(self, index: int, row: int) -> int:
        """Return the tokens of a request in the batch formed last."""
        seats = self.seats(index)
        return int(seats["num_scheduled_tokens"][seats["row"] == row].sum())

    def stop(self, row: int, tokens: int, reason: int) -> None:
        """Let a request of server 0 end after so many output tokens."""
        self.requests[0][row]["stop_at_tokens"] = tokens
        self.requests[0][row]["stop_reason"] = reason
        seats = self.seats(0)
        seats["stop_at_tokens"][seats["row"] == row] = tokens

    def buffers(self) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[np.float64]]:
        """Return fresh observations (N, size), masks (N, actions) and step results (6, N).

        Between steps observations stay as they were written, for the next ones are made of them.
        """
        count = self.num_servers
        self.state["viewed_at"] = 0
        return (
            np.zeros((count, self._layout.size), np.float32),
            np.zeros((count, self._layout.num_actions), np.int8),
            np.zeros((NUM_RESULTS, count), np.float64),
        )

    def reset(
        self,
        observations: NDArray[np.float32],
        masks: NDArray[np.int8],
        *,
        chosen: NDArray[np.bool_] | None = None,
        offset_s: float | None = None,
    ) -> None:
        """Start an episode in the chosen servers (all by default); see ``start_episode``."""
        if chosen is None:
            chosen = np.ones(self.num_servers, np.bool_)
        offset = np.nan if offset_s is None else float(offset_s)
        if self.executor is not None:
            self.executor.reset()
        kernels.reset_batch(self.address, chosen, offset, observations, masks)
        if self.executor is not None:
            live.run_batches(self, observations, masks)

    def begin_decisions(self, observations: NDArray[np.float32], masks: NDArray[np.int8]) -> None:
        """Bring each server, whose arrivals are set, to its first decision."""
        kernels.begin_decisions(self.address, observations, masks)
        if self.executor is not None:
            live.run_batches(self, observations, masks)

    def step(self, actions: NDArray[np.int64], outlet: Outlet) -> int:
        """Take one decision in each server, int64 (N,), into an outlet; return how many flags set.

        A flag is one of the last three results: terminated, truncated, illegal action.
        """
        work = self.address, outlet.address
        if self.crew is None:
            num_flags = kernels.step_servers(*work, 0, self.num_servers, actions)
        else:
            num_flags = self.crew.step(work, self.num_servers, actions)
        if self.executor is not None:
            return live.run_batches(self, outlet.observations, outlet.masks, outlet.results)
        return num_flags

    def step_one(self, action: int, outlet: ScalarOutlet, fresh: Fresh) -> None:
        """Take one decision in the only server, into an outlet and fresh arrays of it."""
        observation_at, mask_at, _, _ = fresh
        kernels.step_one(self.address, outlet.address, action, observation_at, mask_at)
        if self.executor is not None:
            live.run_batches(self, outlet.observations, outlet.masks, outlet.results)
            outlet.copy_to(fresh)

    def view(self, observations: NDArray[np.float32], masks: NDArray[np.int8]) -> None:
        """Write observations and masks as things stand."""
        kernels.view_batch(self.address, observations, masks)

    def grow_rows(self, row_capacity: int) -> None:
        """Make room for more requests, in the trace and the event log too; nothing else changes."""
        old, state, rows = self.arrays, self.state, self.row_capacity
        old_seats = int(state[0]["seat_capacity"])
        state["row_capacity"] = row_capacity
        state["seat_capacity"] = num_seats(state[0], row_capacity)
        state["front_size"] = front_size(state[0])
        new = sized_by_capacity(1, state[0], self._num_bins)
        new["trace"] = records_of(row_capacity, TRACE)
        new["trace"][:rows] = old.trace
        new["requests"][:, :rows] = old.requests
        new["seats"][:, : old.seats.shape[1]] = old.seats
        places = old.order.shape[1]
        new["front"][:, :places] = old.front
        new["order"][:, :places] = old.order
        new["order"]["cell"][:, places:] = np.arange(places, new["order"].shape[1])
        new["heaps"][:, :rows] = old.heaps[:, :rows]
        expiries = old.heaps[:, rows:]
        new["heaps"][:, row_capacity : row_capacity + expiries.shape[1]] = expiries
        more = int(state[0]["seat_capacity"]) - old_seats
        stale_end = 2 * old_seats + int(state[0]["block_size"])
        new["scratch"] = np.insert(old.scratch, [old_seats] * more + [stale_end] * more, 0, 1)
        self.arrays = old._replace(**new, tables=self._more_tables(old_seats))
        reserved = int(state[0]["event_reserve"])
        state["event_reserve"] = event_reserve(state[0])
        self._add_event_room(int(state[0]["event_reserve"]) - reserved)

    def _more_tables(self, old_seats: int) -> NDArray[np.int64]:
        """Return block tables for more seats, with what those of old hold."""
        state, old = self.state[0], self.arrays
        if not state["enable_prefix_caching"]:
            return old.tables
        more = int(state["seat_capacity"]) - old_seats
        start = int(state["num_buckets"])
        free, added = int(state["num_free_tables"]), np.arange(more) + old_seats
        tables = np.insert(old.tables, [start + free] * more, added, axis=1)
        room = np.zeros((1, more * int(state["num_blocks"])), np.int64)
        state["num_free_tables"] += more
        return np.hstack([tables, room])

    def add_hash_ids(self, hash_ids: Sequence[int]) -> int:
        """Append ids of a prompt's content to those of all prompts; return where they start."""
        start, count = self._num_hash_ids, len(hash_ids)
        ids = self.arrays.hash_ids
        if start + count > len(ids):
            ids = np.resize(ids, 2 * (start + count))
            self.arrays = self.arrays._replace(hash_ids=ids)
        ids[start : start + count] = hash_ids
        self._num_hash_ids = start + count
        return start

    def grow_events(self) -> None:
        """Double the room of the event log."""
        self._add_event_room(self.arrays.events.shape[1])

    def _add_event_room(self, count: int) -> None:
        """Make room for more events in the log, if there is one."""
        room = self.arrays.events.shape[1]
        if room > 0:
            events = records_of((self.num_servers, room + count), EVENT)
            events[:, :room] = self.arrays.events
            self.arrays = self.arrays._replace(events=events)

    def events(self, index: int) -> NDArray[Any]:
        """Return the events of a server in order of time, EVENT (num_events,), copied.

        Raises:
            RuntimeError: The log had no room for all: a fault of the simulator.
        """
        if lost := int(self.state[index]["num_lost_events"]):
            raise RuntimeError(f"{lost} events found no room in the log")
        return self.arrays.events[index, : int(self.state[index]["num_events"])].copy()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle needs; the arrays are copied, addresses left out.

        Raises:
            ConfigError: An executor holds the requests' KV cache, which is not copied.
        """
        if self.executor is not None:
            raise ConfigError("a live server cannot be copied: its KV cache lies on the device")
        arrays = {name: np.array(value) for name, value in self.arrays._asdict().items()}
        kept = {name: value for name, value in self.__dict__.items() if name != "_memory"}
        return {**kept, "_arrays": arrays}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Restore a copy or a pickle, which has written no observation yet."""
        self.__dict__.update(saved)
        saved["_arrays"]["state"]["viewed_at"] = 0
        records = {
            name: value if value.dtype == np.int64 else as_records(value)
            for name, value in saved["_arrays"].items()
        }
        self.arrays = Arrays(**records)


def _may_have_lanes(state: Any, key: Key) -> bool:
    """Tell whether the head of the queue is all that a server looks at, and its key has lanes."""
    looks_further = (
        state["num_waiting_slots"]
        or state["skip_ahead"]
        or state["async_scheduling"]
        or state["preemptive_priority"]
        or state["resume_first"]
        or state["enable_prefix_caching"]
    )
    return key.lane_addresses is not None and not looks_further
