"""The memory of N servers, and the compiled core's entries as methods."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import kernels
from sched_env.engine.keycall import IS_COMPILED
from sched_env.engine.layout import Layout
from sched_env.engine.output import ITL_BINS
from sched_env.engine.records import (
    BLOCK,
    ENTRY,
    EVENT,
    ONE_TIME_EVENTS,
    PREEMPTED,
    REQUEST,
    SEGMENT,
    SERVER,
    TRACE,
    WAITING,
    Arrays,
)
from sched_env.errors import ConfigError

_FRONT_SIZE = 32


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


def as_records(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` as the core takes it.

    Plain Python reads fields as attributes only of a recarray; compiled code takes a plain array
    faster.
    """
    return array.view(np.ndarray if IS_COMPILED else np.recarray)


def records_of(count: int | tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeroed records."""
    return as_records(np.zeros(count, dtype))


def _check_room(num_servers: int, settings: Mapping[str, float], row_capacity: int) -> None:
    """Refuse servers that this machine's memory cannot hold.

    Raises:
        ConfigError: They need more than the machine has.
    """
    seats = min(int(settings["max_num_seqs"]), row_capacity)
    slots = int(settings.get("num_waiting_slots", 0)) + int(settings.get("num_running_slots", 0))
    num_requests = slots + 2 * seats + row_capacity
    num_bytes = num_servers * (
        num_requests * REQUEST.itemsize
        + (4 * row_capacity + seats) * ENTRY.itemsize
        + int(settings["block_size"]) * 8
        + int(settings.get("enable_prefix_caching", 0))
        * int(settings["num_blocks"])
        * (8 * seats + BLOCK.itemsize)
    )
    if num_bytes > _memory_bytes():
        raise ConfigError(
            f"{num_servers} server(s) of {row_capacity} requests, block_size "
            f"{int(settings['block_size'])} and {slots} slots need {num_bytes / 2**30:,.0f} GiB "
            f"of memory, more than the {_memory_bytes() / 2**30:,.0f} GiB here: give fewer "
            "environments, a shorter episode (horizon_s, max_requests), a smaller block_size or "
            "fewer slots"
        )


@functools.cache
def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return 2**35


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

    Raises:
        ConfigError: The machine's memory cannot hold them.
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
        _check_room(num_servers, settings, row_capacity)
        state = records_of(num_servers, SERVER)
        for name, value in settings.items():
            state[name] = value
        first = state[0]
        state["front_size"] = max(_FRONT_SIZE, int(first["num_waiting_slots"]))
        state["row_capacity"] = row_capacity
        state["seat_capacity"] = self._seats(first, row_capacity)
        state["static_order"] = key.static
        self.key = key
        self._num_hash_ids = 0 if hash_ids is None else len(hash_ids)
        self._layout = Layout(
            int(first["num_waiting_slots"]),
            int(first["num_running_slots"]),
            bool(first["privileged"]),
        )
        capacity = 0
        if num_events > 0:
            seats = int(first["seat_capacity"])
            capacity = num_events + ONE_TIME_EVENTS * row_capacity + 2 * seats
        bins = ITL_BINS if count_itl else 0
        state["num_buckets"] = self._num_buckets(first)
        self.arrays = Arrays(
            state=state,
            cost=as_records(cost),
            classes=as_records(classes),
            trace=as_records(trace),
            segments=as_records(segments),
            slots=records_of((num_servers, self._num_slots(first, row_capacity)), REQUEST),
            heaps=records_of((num_servers, self._num_entries(first, row_capacity)), ENTRY),
            events=records_of((num_servers, capacity), EVENT),
            scratch=np.zeros((num_servers, self._itl_start(first) + bins), np.int64),
            blocks=records_of((num_servers, self._num_blocks(first)), BLOCK),
            tables=np.zeros((num_servers, self._num_tables(first)), np.int64),
            hash_ids=np.zeros(0, np.int64) if hash_ids is None else hash_ids,
        )

    @staticmethod
    def _seats(state: Any, row_capacity: int) -> int:
        """Return the most requests that can run: ``max_num_seqs``, but no more than there are."""
        return min(int(state["max_num_seqs"]), row_capacity)

    @staticmethod
    def _num_slots(state: Any, row_capacity: int) -> int:
        return int(state["front_size"]) + 2 * int(state["seat_capacity"]) + row_capacity

    @staticmethod
    def _num_entries(state: Any, row_capacity: int) -> int:
        return 4 * row_capacity + int(state["seat_capacity"])

    @staticmethod
    def _itl_start(state: Any) -> int:
        return int(state["block_size"]) + int(state["seat_capacity"])

    @staticmethod
    def _num_buckets(state: Any) -> int:
        """Return a power of two, at least the number of blocks."""
        return 1 << int(state["num_blocks"]).bit_length() if state["enable_prefix_caching"] else 0

    @staticmethod
    def _num_blocks(state: Any) -> int:
        return int(state["num_blocks"]) + 1 if state["enable_prefix_caching"] else 0

    @classmethod
    def _num_tables(cls, state: Any) -> int:
        if not state["enable_prefix_caching"]:
            return 0
        seats = int(state["seat_capacity"])
        return cls._num_buckets(state) + seats * (1 + int(state["num_blocks"]))

    @property
    def num_servers(self) -> int:
        """Return N."""
        return len(self.arrays.state)

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
        return self.arrays.slots[:, -self.row_capacity :]

    @property
    def itl_counts(self) -> NDArray[np.int64]:
        """Return the counts of inter-token latencies, int64 (N, bins)."""
        return self.arrays.scratch[:, self._itl_start(self.state[0]) :]

    def block_tables(self, index: int) -> NDArray[np.int64]:
        """Return the blocks of each request by its table, int64 (seats, num_blocks)."""
        seats, num_blocks = int(self.state[0]["seat_capacity"]), int(self.state[0]["num_blocks"])
        count = seats * num_blocks if self.arrays.tables.shape[1] else 0
        tables = self.arrays.tables[index, self.arrays.tables.shape[1] - count :]
        return tables.reshape(-1, num_blocks)

    def live(self, index: int, part: str) -> NDArray[Any]:
        """Return the requests held by value in ``front``, ``admitted`` or ``running``."""
        state = self.state[index]
        front, seats = int(state["front_size"]), int(state["seat_capacity"])
        start = {"front": 0, "admitted": front, "running": front + seats}[part]
        return self.arrays.slots[index, start : start + int(state[f"num_{part}"])]

    def waiting_rows(self, index: int) -> list[int]:
        """Return the rows of the waiting requests in service order."""
        behind = self.arrays.heaps[index, : int(self.state[index]["num_backlog"])]
        order = np.lexsort((behind["tie"], behind["second_key"], behind["key"]))
        status = self.requests[index]["status"]
        rows = [int(behind["row"][place]) for place in order]
        waiting = [row for row in rows if status[row] in (WAITING, PREEMPTED)]
        return [*self.live(index, "front")["row"].tolist(), *waiting]

    def find(self, index: int, row: int) -> Any:
        """Return the record of a request where it is up to date."""
        for part in ("running", "admitted", "front"):
            records = self.live(index, part)
            places = np.flatnonzero(records["row"] == row)
            if places.size:
                return records[places[0]]
        return self.requests[index, row]

    def buffers(self) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[np.float64]]:
        """Return fresh observations (N, size), masks (N, actions) and step results (N, 6)."""
        count = self.num_servers
        return (
            np.zeros((count, self._layout.size), np.float32),
            np.zeros((count, self._layout.num_actions), np.int8),
            np.zeros((count, 6), np.float64),
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
        kernels.reset_batch(self.arrays, self.key.addresses, chosen, offset, observations, masks)

    def step(
        self,
        actions: NDArray[np.int64],
        observations: NDArray[np.float32],
        masks: NDArray[np.int8],
        results: NDArray[np.float64],
    ) -> int:
        """Take one decision in each server, into the given buffers; return how many ended."""
        address, jit_address = self.key.addresses
        return kernels.step_batch(
            *self.arrays, address, jit_address, actions, observations, masks, results
        )

    def view(self, observations: NDArray[np.float32], masks: NDArray[np.int8]) -> None:
        """Write observations and masks as things stand."""
        kernels.view_batch(self.arrays, observations, masks)

    def grow_rows(self, row_capacity: int) -> None:
        """Make room for more requests; nothing else changes."""
        old, state = self.arrays, self.state
        parts = {part: self.live(0, part).copy() for part in ("front", "admitted", "running")}
        requests, rows = self.requests.copy(), self.row_capacity
        expiries = old.heaps[:, rows:].copy()
        seats = int(state[0]["seat_capacity"])
        state["row_capacity"] = row_capacity
        state["seat_capacity"] = self._seats(state[0], row_capacity)
        slots = records_of((1, self._num_slots(state[0], row_capacity)), REQUEST)
        heaps = records_of((1, self._num_entries(state[0], row_capacity)), ENTRY)
        heaps[:, :rows] = old.heaps[:, :rows]
        heaps[:, row_capacity : row_capacity + expiries.shape[1]] = expiries
        self.arrays = old._replace(slots=slots, heaps=heaps, **self._more_seats(seats))
        self.requests[:, :rows] = requests
        for part, records in parts.items():
            self.live(0, part)[:] = records

    def _more_seats(self, old_seats: int) -> dict[str, NDArray[np.int64]]:
        """Return scratch and block tables for more seats, with what those of old hold."""
        state, old = self.state[0], self.arrays
        more = int(state["seat_capacity"]) - old_seats
        scratch = np.insert(old.scratch, [self._itl_start(state) - more] * more, 0, axis=1)
        if not state["enable_prefix_caching"]:
            return {"scratch": scratch}
        start = int(state["num_buckets"])
        free, added = int(state["num_free_tables"]), np.arange(more) + old_seats
        tables = np.insert(old.tables, [start + free] * more, added, axis=1)
        room = np.zeros((1, more * int(state["num_blocks"])), np.int64)
        state["num_free_tables"] += more
        return {"scratch": scratch, "tables": np.hstack([tables, room])}

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
        events = records_of((self.num_servers, 2 * self.arrays.events.shape[1]), EVENT)
        events[:, : self.arrays.events.shape[1]] = self.arrays.events
        self.arrays = self.arrays._replace(events=events)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle needs; the arrays are copied."""
        arrays = {name: np.array(value) for name, value in self.arrays._asdict().items()}
        return {**self.__dict__, "arrays": arrays}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Restore a copy or a pickle."""
        self.__dict__.update(saved)
        arrays = saved["arrays"]
        records = {
            name: value if value.dtype == np.int64 else as_records(value)
            for name, value in arrays.items()
        }
        self.arrays = Arrays(**records)


def no_trace() -> NDArray[Any]:
    """Return an empty trace."""
    return records_of(0, TRACE)


def whole_trace(trace: NDArray[Any]) -> NDArray[Any]:
    """Return the one segment that spans a trace at its recorded rate, SEGMENT (1,)."""
    segment = records_of(1, SEGMENT)
    segment["end_row"] = len(trace)
    segment["end_s"] = trace["arrival_time_s"][-1] if len(trace) else 0.0
    segment["interval_scale"] = 1.0
    return segment
