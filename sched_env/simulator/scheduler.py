"""The scheduler for scripts: add requests, schedule a step, update, look."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sched_env.config.scheduler import SchedulerConfig
from sched_env.cost.step_time import COST
from sched_env.engine import kernels
from sched_env.engine.allocation import records_of, whole_trace
from sched_env.engine.records import (
    EVENT_FINISH,
    EVENT_PREEMPT,
    EVENT_REJECT,
    FINISH_REASON_NAMES,
    LENGTH,
    MAX_MODEL_LEN,
    NOT_ENDED,
    STATUS_NAMES,
    STOP,
    TRACE,
    VICTIM_TAIL,
)
from sched_env.engine.setup import scheduler_settings
from sched_env.engine.world import World
from sched_env.errors import ConfigError, UnknownNameError
from sched_env.policy.keys import Heuristic
from sched_env.simulator.id_order import IdOrder
from sched_env.simulator.request_arguments import (
    can_be_hashed,
    check_count,
    check_hash_ids,
    is_finite_number,
)
from sched_env.simulator.request_view import RequestView, Status
from sched_env.workload.service_classes import SERVICE_CLASS

_FIRST_ROWS = 64


def _added_first(request: Any, now: float) -> tuple[float, float]:
    return float(request.row), 0.0


def _by_priority(request: Any, now: float) -> tuple[float, float]:
    return -request.priority, request.arrival_time_s


_ORDERS = {
    "fcfs": Heuristic("fcfs", _added_first, static=True),
    "priority": Heuristic("priority", _by_priority, static=True),
}


class _Batch(NamedTuple):
    """A batch in flight: the rows in it, and those of them to which it brings a token."""

    rows: list[int]
    complete: list[int]


class Scheduler:
    """Continuous batching with chunked prefill and recompute preemption, step by step.

    The rules are those of ``config`` (vLLM 0.33.0's by default), run by the same compiled core as
    the environments.

    >>> from sched_env import Scheduler, SchedulerConfig
    >>> s = Scheduler(SchedulerConfig(max_num_batched_tokens=16, max_num_seqs=8, num_blocks=100))
    >>> for name in ("a", "b", "c"):
    ...     s.add_request(name, prompt_len=10, max_tokens=4)
    >>> s.schedule()
    {'a': 10, 'b': 6}
    >>> s.update()
    []
    >>> s.schedule()
    {'a': 1, 'b': 4, 'c': 10}

    Args:
        config: Budgets and rules.
        sample_fn: Gives the next output token of a request, from its view before the token; called
            in batch order. By default a token is the number of tokens before it.
        eos_token_id: A sampled token that ends its request. Without ``sample_fn`` the tokens are
            0, 1, 2, ..., so this one ends every request as its ``eos_token_id + 1``-th;
            ``add_request(..., eos_at=...)`` says it of one request.
        hash_block_tokens: Prompt tokens that one of a request's ``hash_ids`` stands for; by default
            a KV block's. One of the two has to be a multiple of the other.

    Raises:
        ConfigError: An argument is of another kind.
    """

    def __init__(
        self,
        config: SchedulerConfig | None = None,
        sample_fn: Callable[[RequestView], int] | None = None,
        eos_token_id: int | None = None,
        *,
        hash_block_tokens: int | None = None,
    ) -> None:
        if not isinstance(config, SchedulerConfig | None):
            raise ConfigError(f"config is {config!r}: give a SchedulerConfig(...)")
        if not (sample_fn is None or callable(sample_fn)):
            raise ConfigError(f"sample_fn is {sample_fn!r}: give a function of a RequestView")
        if hash_block_tokens is not None:
            check_count("hash_block_tokens", hash_block_tokens, 1)
        if eos_token_id is not None:
            check_count("eos_token_id", eos_token_id, 0)
        self.config = config or SchedulerConfig()
        self._sample = sample_fn or _count_outputs
        self._eos_token_id = eos_token_id
        self._order = _ORDERS[self.config.policy]
        trace = records_of(_FIRST_ROWS, TRACE)  # knows the prompts by their content
        cost = records_of(1, COST)
        self._world = World(
            1,
            {
                **scheduler_settings(self.config),
                "victim": _victim_rule(self.config),
                "hash_block_tokens": hash_block_tokens or self.config.block_size,
            },
            self._order,
            cost=cost,
            classes=records_of(1, SERVICE_CLASS),
            trace=trace,
            segments=whole_trace(trace),
            row_capacity=_FIRST_ROWS,
            num_events=1,  # what a call records is taken at its end
        )
        kernels.reset_one(self._world.address)
        self._ids: list[Hashable] = []
        self._rows: dict[Hashable, int] = {}
        self._id_order = IdOrder()
        self._outputs: list[list[int]] = []
        self._finished: list[Hashable] = []
        self._rejected: list[Hashable] = []
        self._preempted: tuple[Hashable, ...] = ()
        self._in_flight: deque[_Batch] = deque()  # oldest first
        self._most_in_flight = 2 if self.config.async_scheduling else 1

    @property
    def _state(self) -> Any:
        return self._world.state[0]

    def add_request(
        self,
        request_id: Hashable,
        prompt_len: int,
        max_tokens: int,
        *,
        eos_at: int = 0,
        priority: float = 0,
        arrival_time: float = 0.0,
        hash_ids: Sequence[int] = (),
    ) -> None:
        """Let a request wait; one that can never fit is rejected (``rejected``).

        Args:
            request_id: Any hashable name, used once.
            prompt_len: Prompt tokens, at least 1.
            max_tokens: Most output tokens, at least 1.
            eos_at: The output token, counted from 1, that is the end-of-sequence one; 0: none.
            priority: Larger is served first (vLLM: smaller), under ``policy="priority"``.
            arrival_time: Breaks ties of priority.
            hash_ids: Ids of the prompt's content, ``hash_block_tokens`` each, for prefix caching:
                requests with the same leading ids share their KV blocks.

        Raises:
            ConfigError: A value is not allowed, or the id was used before.
        """
        if not can_be_hashed(request_id):
            raise ConfigError(f"request id {request_id!r} cannot be hashed: give a text or number")
        if request_id in self._rows:
            raise ConfigError(f"request id {request_id!r} was added before: give each its own")
        check_count("prompt_len", prompt_len, 1)
        check_count("max_tokens", max_tokens, 1)
        check_count("eos_at", eos_at, 0)
        for name, value in (("priority", priority), ("arrival_time", arrival_time)):
            if not is_finite_number(value):
                raise ConfigError(f"{name} is {value!r}: give a finite number")
        check_hash_ids(hash_ids)
        row = len(self._ids)
        if row == self._world.row_capacity:
            self._world.grow_rows(2 * row)
        self._fill(row, request_id, prompt_len, max_tokens, eos_at, priority, arrival_time)
        self._note_content(row, hash_ids)
        self._ids.append(request_id)
        self._rows[request_id] = row
        self._outputs.append([])
        kernels.submit_one(self._world.address, row)
        self._rejected += self._ids_of(self._take_events(), EVENT_REJECT)

    def _fill(
        self,
        row: int,
        request_id: Hashable,
        prompt_len: int,
        max_tokens: int,
        eos_at: int,
        priority: float,
        arrival_time: float,
    ) -> None:
        kernels.clear_row(self._world.address, row)
        request = self._world.requests[0, row]
        self._id_order.place(self._world, request_id, row)
        request["prompt_tokens"] = prompt_len
        request["priority"] = priority
        request["arrival_time_s"] = arrival_time
        request["predicted_output_tokens"] = max_tokens
        request["ttft_slo_s"] = request["tpot_slo_s"] = np.inf
        request["weight"] = 1.0
        ends = [(max_tokens, LENGTH)]
        if eos_at:
            ends.append((eos_at, STOP))
        if self.config.max_model_len is not None:
            ends.append((max(self.config.max_model_len - prompt_len, 1), MAX_MODEL_LEN))
        # Of reasons that come together vLLM names the end-of-sequence token first.
        stop_at, reason = min(ends, key=lambda end: (end[0], end[1] != STOP))
        request["output_tokens"] = max_tokens
        request["stop_at_tokens"] = stop_at
        request["stop_reason"] = reason

    def _note_content(self, row: int, hash_ids: Sequence[int]) -> None:
        if not self.config.enable_prefix_caching or len(hash_ids) == 0:
            return
        first_hash = self._world.add_hash_ids(hash_ids)
        source = self._world.arrays.trace[row]
        source["first_hash"], source["num_hashes"] = first_hash, len(hash_ids)

    def schedule(self) -> dict[Hashable, int]:
        """Form the next batch and return its tokens by request id, in batch order (a copy).

        Raises:
            ConfigError: The last batch has not been updated; with ``async_scheduling`` the one
                before it.
        """
        if len(self._in_flight) == self._most_in_flight:
            raise ConfigError(
                f"schedule() with {len(self._in_flight)} batch(es) in flight: call update() before "
                "the next one (async_scheduling=True lets a second one fly)"
            )
        kernels.schedule_one(self._world.address)
        seats = self._world.seats(0)
        batch = seats[seats["num_scheduled_tokens"] > 0]
        rows, tokens = batch["row"].tolist(), batch["num_scheduled_tokens"].tolist()
        complete = batch["row"][batch["is_prefill_chunk"] == 0].tolist()
        self._in_flight.append(_Batch(rows, complete))
        events = self._take_events()
        self._preempted = self._ids_of(events, EVENT_PREEMPT)
        self._rejected += self._ids_of(events, EVENT_REJECT)
        self._finished += self._ids_of(events, EVENT_FINISH)
        return {self._ids[row]: count for row, count in zip(rows, tokens, strict=True)}

    def update(self) -> list[Hashable]:
        """Apply the outputs of the oldest scheduled batch; return the ids it finished, in order.

        Raises:
            ConfigError: No batch is scheduled, or ``sample_fn`` returned no token; nothing has
                changed then.
        """
        if not self._in_flight:
            raise ConfigError("update() without a batch: call schedule() first")
        sampled = [(row, self._next_token(row)) for row in self._in_flight[0].complete]
        batch = self._in_flight.popleft()
        for row, token in sampled:
            if token is not None:
                self._append_token(row, token)
        kernels.deliver_one(self._world.address, 1.0)
        events = self._take_events()
        ended = set(events["row"][events["kind"] == EVENT_FINISH].tolist())
        finished = [self._ids[row] for row in batch.rows if row in ended]
        self._finished += finished
        return finished

    def _next_token(self, row: int) -> int | None:
        """Return the next output token of a request, None if it has ended."""
        request = self._world.find(0, row)
        if request["finish_reason"] != NOT_ENDED:
            return None
        token = self._sample(self._view(request))
        if isinstance(token, bool) or not isinstance(token, int | np.integer):
            raise ConfigError(f"sample_fn returned {token!r}: return a token, a whole number")
        return token

    def _append_token(self, row: int, token: int) -> None:
        if self._eos_token_id is not None and token == self._eos_token_id:
            request = self._world.find(0, row)
            self._world.stop(row, int(request["num_output_tokens"]) + 1, STOP)
        self._outputs[row].append(token)

    def _take_events(self) -> NDArray[Any]:
        """Return the events since the last call and forget them."""
        events = self._world.events(0)
        self._state["num_events"] = 0
        self._state["num_recurring_events"] = 0
        return events

    def _ids_of(self, events: NDArray[Any], kind: int) -> tuple[Hashable, ...]:
        return tuple(self._ids[row] for row in events["row"][events["kind"] == kind].tolist())

    @property
    def preempted(self) -> tuple[Hashable, ...]:
        """Return the ids that the last ``schedule()`` preempted, in order."""
        return self._preempted

    @property
    def free_blocks(self) -> int:
        """Return the number of free KV blocks."""
        return int(self._state["free_blocks"])

    @property
    def blocks_used(self) -> int:
        """Return the number of KV blocks that running requests hold."""
        return self.config.num_blocks - self.free_blocks

    @property
    def waiting(self) -> tuple[Hashable, ...]:
        """Return the waiting ids, new and preempted, in service order."""
        return tuple(self._ids[row] for row in self._world.waiting_rows(0))

    @property
    def running(self) -> tuple[Hashable, ...]:
        """Return the running ids in batch order."""
        return tuple(self._ids[row] for row in self._world.live(0, "running")["row"].tolist())

    @property
    def finished(self) -> tuple[Hashable, ...]:
        """Return the finished ids in the order in which they finished."""
        return tuple(self._finished)

    @property
    def rejected(self) -> tuple[Hashable, ...]:
        """Return the ids that were rejected on arrival."""
        return tuple(self._rejected)

    @property
    def has_unfinished(self) -> bool:
        """Tell whether a request waits or runs."""
        return int(self._state["num_waiting"]) + int(self._state["num_running"]) > 0

    def request(self, request_id: Hashable) -> RequestView:
        """Return a request as it stands.

        Raises:
            UnknownNameError: No request of that id was added.
        """
        if not can_be_hashed(request_id) or request_id not in self._rows:
            raise UnknownNameError("request", str(request_id), map(str, self._rows))
        return self._view(self._world.find(0, self._rows[request_id]))

    def _view(self, request: Any) -> RequestView:
        row = int(request["row"])
        computed = int(request["num_computed_tokens"])
        is_p07 = self.config.rules == "p07"
        if is_p07 and self._in_flight:
            computed -= self._world.scheduled_tokens(0, row)
        status = STATUS_NAMES[int(request["status"])]
        return RequestView(
            request_id=self._ids[row],
            prompt_len=int(request["prompt_tokens"]),
            num_computed_tokens=computed,
            num_tokens=int(request["prompt_tokens"]) + len(self._outputs[row]),
            num_blocks=int(request["num_blocks"]),
            output=tuple(self._outputs[row]),
            status="waiting" if is_p07 and status == "preempted" else cast("Status", status),
            num_preemptions=int(request["num_preemptions"]),
            num_cached_tokens=int(request["num_cached_tokens"]),
            finish_reason=FINISH_REASON_NAMES[int(request["finish_reason"])],
        )


def _victim_rule(config: SchedulerConfig) -> int:
    """Return the victim rule; by default vLLM's: the last running one, or the last by priority."""
    if config.victim is None and config.policy == "fcfs":
        return VICTIM_TAIL
    return int(scheduler_settings(config)["victim"])


def _count_outputs(view: RequestView) -> int:
    return len(view.output)
