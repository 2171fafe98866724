"""The teaching machine for scripts: enqueue requests, take steps, look at the events."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter, index
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import decode_machine as core
from sched_env.engine.records import STATUS_NAMES
from sched_env.engine.world import as_records, records_of
from sched_env.errors import ConfigError, did_you_mean

Phase = Literal["prefill", "decode"]
RequestStatus = Literal["waiting", "running", "preempted", "finished"]
Event = dict[str, Any]

_PHASES = {name: number for number, name in enumerate(core.PHASE_NAMES)}
_STATUSES = {name: number for number, name in enumerate(STATUS_NAMES[:4])}
_SIZES = (
    "request_id",
    "prompt_len",
    "max_new_tokens",
    "generated_len",
    "priority",
    "wait_steps",
    "required_blocks",
    "preemptions",
)
_SIZES_OF = attrgetter(*_SIZES)
_LARGEST = 2**60


@dataclass
class RequestState:
    """A request of the teaching machine as it stands; every field may be written.

    Attributes:
        request_id: A whole number, used once.
        prompt_len: Prompt tokens.
        max_new_tokens: Output tokens until it is done.
        generated_len: Output tokens so far; preemption never takes one away.
        phase: ``prefill`` until its first step, then ``decode``.
        priority: Larger is served first.
        cache_hit: Whether its prefix is cached; hits go first.
        wait_steps: Steps that others got while it was unfinished; never reset.
        required_blocks: KV blocks it holds from admission until it is done or preempted.
        admitted: Whether it holds them.
        deadline_step: Clock by which it should be done, or ``None``.
        preemptible: Whether it may be preempted.
        status: ``waiting``, ``running`` (admitted), ``preempted`` or ``finished``.
        preemptions: How often it was preempted.
    """

    request_id: int
    prompt_len: int
    max_new_tokens: int
    generated_len: int = 0
    phase: Phase = "prefill"
    priority: int = 0
    cache_hit: bool = False
    wait_steps: int = 0
    required_blocks: int = 1
    admitted: bool = False
    deadline_step: int | None = None
    preemptible: bool = True
    status: RequestStatus = "waiting"
    preemptions: int = 0

    @property
    def total_len(self) -> int:
        """Return prompt and output tokens so far."""
        return self.prompt_len + self.generated_len

    @property
    def done(self) -> bool:
        """Tell whether all output tokens are there."""
        return self.generated_len >= self.max_new_tokens


class DecodeSchedulerSim:
    """Serve requests one step at a time, in an order that a policy sets.

    Each step goes to the first request of the service order that holds its KV blocks or gets them,
    by preempting one other if need be: a preemptible one of strictly lower effective priority. The
    order is that of ``_schedule_key``; a subclass may set another one there.

    >>> from sched_env import DecodeSchedulerSim
    >>> sim = DecodeSchedulerSim(policy="fixed_priority", free_kv_blocks=2)
    >>> sim.enqueue(1, prompt_len=4, max_new_tokens=2, priority=1, required_blocks=2)
    >>> sim.step()["action"]
    'prefill_to_decode'
    >>> sim.enqueue(2, prompt_len=2, max_new_tokens=1, priority=9, required_blocks=2)
    >>> event = sim.step()
    >>> event["request_id"], event["preempted_request_id"]
    (2, 1)

    Args:
        policy: ``fixed_priority``; ``aging``: every ``aging_interval`` steps of waiting are worth
            one level of priority; ``deadline``: least slack first.
        free_kv_blocks: KV blocks that are free at the start.
        aging_interval: Steps, at least 1.

    Attributes:
        queue: Every request ever enqueued, finished ones included: live objects.
        timeline: The events so far, one dict a step.

    Raises:
        ConfigError: An argument is not allowed; it is a ``ValueError``.
    """

    def __init__(
        self,
        policy: str = "fixed_priority",
        free_kv_blocks: int = 1_000_000,
        aging_interval: int = 4,
    ) -> None:
        self._machine = records_of(1, core.MACHINE)
        self.policy = policy
        self.free_kv_blocks = free_kv_blocks
        self.aging_interval = aging_interval
        self.queue: list[RequestState] = []
        self.timeline: list[Event] = []

    @property
    def policy(self) -> str:
        """Return or set the name of the policy."""
        return core.POLICY_NAMES[int(self._machine["policy"][0])]

    @policy.setter
    def policy(self, name: str) -> None:
        if name not in core.POLICY_NAMES:
            hint = did_you_mean(str(name), core.POLICY_NAMES)
            raise ConfigError(
                f"policy {name!r} is unknown.{hint} Known: {', '.join(core.POLICY_NAMES)}"
            )
        self._machine["policy"] = core.POLICY_NAMES.index(name)

    @property
    def free_kv_blocks(self) -> int:
        """Return or set the number of free KV blocks."""
        return int(self._machine["free_kv_blocks"][0])

    @free_kv_blocks.setter
    def free_kv_blocks(self, count: int) -> None:
        self._machine["free_kv_blocks"] = _whole("free_kv_blocks", count, 0)

    @property
    def aging_interval(self) -> int:
        """Return or set the steps of waiting that are worth one level of priority."""
        return int(self._machine["aging_interval"][0])

    @aging_interval.setter
    def aging_interval(self, steps: int) -> None:
        self._machine["aging_interval"] = _whole("aging_interval", steps, 1)

    @property
    def clock(self) -> int:
        """Return or set the number of steps taken."""
        return int(self._machine["clock"][0])

    @clock.setter
    def clock(self, steps: int) -> None:
        self._machine["clock"] = _whole("clock", steps, 0)

    def enqueue(
        self,
        request_id: int,
        prompt_len: int,
        max_new_tokens: int = 2,
        priority: int = 0,
        cache_hit: bool = False,
        required_blocks: int = 1,
        deadline_step: int | None = None,
        preemptible: bool = True,
    ) -> None:
        """Let a request wait; it starts with its prefill.

        Args:
            request_id: A whole number that no other request has.
            prompt_len: Prompt tokens, at least 1.
            max_new_tokens: Output tokens, at least 1.
            priority: Larger is served first.
            cache_hit: Whether its prefix is cached.
            required_blocks: KV blocks it holds while admitted, at least 1.
            deadline_step: Clock by which it should be done, later than now; ``None``: no deadline.
            preemptible: Whether it may be preempted.

        Raises:
            ConfigError: A value is not allowed, or the id was used before; a ``ValueError``.
        """
        number = _whole("request_id", request_id, -_LARGEST)
        if any(number == other.request_id for other in self.queue):
            raise ConfigError(f"request_id {number} was used before: give each request its own")
        if deadline_step is not None:
            deadline_step = _whole("deadline_step", deadline_step, 1)
            if deadline_step <= self.clock:
                raise ConfigError(
                    f"deadline_step {deadline_step} is not ahead of the clock, which stands at "
                    f"{self.clock}: give a later step or None"
                )
        request = RequestState(
            request_id=number,
            prompt_len=_whole("prompt_len", prompt_len, 1),
            max_new_tokens=_whole("max_new_tokens", max_new_tokens, 1),
            priority=_whole("priority", priority, -_LARGEST),
            cache_hit=bool(cache_hit),
            required_blocks=_whole("required_blocks", required_blocks, 1),
            deadline_step=deadline_step,
            preemptible=bool(preemptible),
        )
        self.queue.append(request)

    def step(self) -> Event | None:
        """Give one step to the first request that can have it.

        Returns:
            The event, also appended to ``timeline``; ``None``, and nothing has changed, if no
            request is left or none can be admitted.

        Raises:
            ConfigError: A field of a request was set to something that it cannot be.
        """
        requests = _as_rows(self.queue)
        if getattr(self._schedule_key, "__func__", None) is DecodeSchedulerSim._schedule_key:
            chosen, victim, action, is_late = core.serve_next(self._machine, requests)
        else:
            order = self._own_order()
            chosen, victim, action, is_late = core.serve_in(self._machine, requests, order)
        if chosen == core.NONE:
            return None
        self._take_over(requests, (chosen, victim))
        request = self.queue[chosen]
        event: Event = {
            "request_id": request.request_id,
            "phase": "prefill" if action == core.PREFILL_TO_DECODE else "decode",
            "action": core.ADVANCE_NAMES[action],
            "prompt_len": request.prompt_len,
            "generated_len": request.generated_len,
            "max_new_tokens": request.max_new_tokens,
            "wait_steps": request.wait_steps,
            "free_kv_blocks": self.free_kv_blocks,
            "preempted_request_id": None if victim == core.NONE else self.queue[victim].request_id,
            "deadline_missed": bool(is_late),
        }
        self.timeline.append(event)
        return event

    def run(self, max_steps: int = 100) -> list[Event]:
        """Take steps until nothing can move, but no more than ``max_steps``.

        Returns:
            The timeline.

        Raises:
            ConfigError: ``max_steps`` is negative or no whole number; a ``ValueError``.
        """
        for _ in range(_whole("max_steps", max_steps, 0)):
            if self.step() is None:
                break
        return self.timeline

    def _schedule_key(self, req: RequestState) -> tuple[int, ...]:
        """Return the place of a request in the service order, smaller first.

        Slack (1,000,000,000 without a deadline or under another policy), 0 in prefill, 0 for a
        cache hit, minus the effective priority, total length, id.
        """
        return tuple(map(int, core.schedule_key(self._machine[0], _as_rows([req])[0])))

    def _effective_priority(self, req: RequestState) -> int:
        """Return the priority, raised by what the request waited under ``aging``."""
        return int(core.effective_priority(self._machine[0], _as_rows([req])[0]))

    def _remaining_steps(self, req: RequestState) -> int:
        """Return the steps that a request still needs."""
        return int(core.remaining_steps(_as_rows([req])[0]))

    def _ensure_capacity(self, challenger: RequestState) -> int | None:
        """Admit a request if it can be; return the id of the one preempted for it, if any."""
        is_queued = any(challenger is request for request in self.queue)
        everyone = self.queue if is_queued else [*self.queue, challenger]
        row = next(row for row, request in enumerate(everyone) if request is challenger)
        requests = _as_rows(everyone)
        victim = core.ensure_capacity(self._machine[0], requests, row)
        _take_row(challenger, requests[row])
        if victim == core.NONE:
            return None
        _take_row(self.queue[victim], requests[victim])
        return self.queue[victim].request_id

    def _own_order(self) -> NDArray[np.int64]:
        """Return the rows of unfinished requests in the order of a subclass's key."""
        rows = [row for row, request in enumerate(self.queue) if not request.done]
        return np.array(sorted(rows, key=lambda row: self._schedule_key(self.queue[row])), np.int64)

    def _take_over(self, requests: NDArray[Any], changed: tuple[int, int]) -> None:
        """Write what a step changed into the live objects."""
        for request, wait_steps in zip(self.queue, requests["wait_steps"].tolist(), strict=True):
            request.wait_steps = wait_steps
        for row in changed:
            if row != core.NONE:
                _take_row(self.queue[row], requests[row])


def _as_rows(queue: list[RequestState]) -> NDArray[Any]:
    """Return requests as the core takes them, DECODE_REQUEST (count,)."""
    rows = [_as_row(request) for request in queue]
    try:
        return as_records(np.array(rows, core.DECODE_REQUEST))
    except OverflowError:
        for request in queue:
            _explain(request)
        raise


def _as_row(request: RequestState) -> tuple[Any, ...]:
    """Return the values of a DECODE_REQUEST.

    Raises:
        ConfigError: A field was set to something that it cannot be.
    """
    deadline = request.deadline_step
    try:
        return (
            *map(index, _SIZES_OF(request)),
            0 if deadline is None else index(deadline),
            0,
            _PHASES[request.phase],
            _STATUSES[request.status],
            bool(request.cache_hit),
            bool(request.admitted),
            deadline is not None,
            bool(request.preemptible),
            False,
        )
    except (KeyError, TypeError):
        _explain(request)
        raise


def _explain(request: RequestState) -> None:
    """Name the field of a request that holds what it cannot be."""
    for name in _SIZES:
        _whole(name, getattr(request, name), -_LARGEST)
    if request.deadline_step is not None:
        _whole("deadline_step", request.deadline_step, -_LARGEST)
    for name, known in (("phase", _PHASES), ("status", _STATUSES)):
        value = getattr(request, name)
        if not isinstance(value, str) or value not in known:
            hint = did_you_mean(str(value), known)
            raise ConfigError(
                f"{name} of request {request.request_id} is {value!r}.{hint} "
                f"Known: {', '.join(known)}"
            )


def _take_row(request: RequestState, row: Any) -> None:
    request.phase = core.PHASE_NAMES[int(row["phase"])]  # pyright: ignore[reportAttributeAccessIssue]
    request.status = STATUS_NAMES[int(row["status"])]  # pyright: ignore[reportAttributeAccessIssue]
    request.generated_len = int(row["generated_len"])
    request.preemptions = int(row["preemptions"])
    request.admitted = bool(row["admitted"])


def _whole(name: str, value: Any, lowest: int) -> int:
    """Return a whole number.

    Raises:
        ConfigError: It is none, or out of range.
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or not lowest <= number <= _LARGEST:
        allowed = f"from {lowest} to {_LARGEST}" if lowest >= 0 else f"up to ±{_LARGEST}"
        raise ConfigError(f"{name} is {value!r}: give a whole number {allowed}")
    return number
