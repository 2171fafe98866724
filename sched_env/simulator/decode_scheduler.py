"""The teaching machine for scripts: enqueue requests, take steps, look at the events."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import decode_machine as core
from sched_env.engine.allocation import records_of
from sched_env.errors import ConfigError, did_you_mean
from sched_env.simulator.decode_outcomes import decode_outcomes
from sched_env.simulator.request_state import (
    LARGEST,
    RequestState,
    as_rows,
    take_row,
    whole_number,
)

Event = dict[str, Any]


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
        self._arrivals: dict[int, int] = {}
        self._clocks: list[int] = []

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
        self._machine["free_kv_blocks"] = whole_number("free_kv_blocks", count, 0)

    @property
    def aging_interval(self) -> int:
        """Return or set the steps of waiting that are worth one level of priority."""
        return int(self._machine["aging_interval"][0])

    @aging_interval.setter
    def aging_interval(self, steps: int) -> None:
        self._machine["aging_interval"] = whole_number("aging_interval", steps, 1)

    @property
    def clock(self) -> int:
        """Return or set the number of steps taken."""
        return int(self._machine["clock"][0])

    @clock.setter
    def clock(self, steps: int) -> None:
        self._machine["clock"] = whole_number("clock", steps, 0)

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
        number = whole_number("request_id", request_id, -LARGEST)
        if any(number == other.request_id for other in self.queue):
            raise ConfigError(f"request_id {number} was used before: give each request its own")
        if deadline_step is not None:
            deadline_step = whole_number("deadline_step", deadline_step, 1)
            if deadline_step <= self.clock:
                raise ConfigError(
                    f"deadline_step {deadline_step} is not ahead of the clock, which stands at "
                    f"{self.clock}: give a later step or None"
                )
        request = RequestState(
            request_id=number,
            prompt_len=whole_number("prompt_len", prompt_len, 1),
            max_new_tokens=whole_number("max_new_tokens", max_new_tokens, 1),
            priority=whole_number("priority", priority, -LARGEST),
            cache_hit=bool(cache_hit),
            required_blocks=whole_number("required_blocks", required_blocks, 1),
            deadline_step=deadline_step,
            preemptible=bool(preemptible),
        )
        self.queue.append(request)
        self._arrivals[number] = self.clock

    def step(self) -> Event | None:
        """Give one step to the first request that can have it.

        Returns:
            The event, also appended to ``timeline``; ``None``, and nothing has changed, if no
            request is left or none can be admitted.

        Raises:
            ConfigError: A field of a request was set to something that it cannot be.
        """
        clock = self.clock
        requests = as_rows(self.queue)
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
        self._clocks.append(clock)
        return event

    def run(self, max_steps: int = 100) -> list[Event]:
        """Take steps until nothing can move, but no more than ``max_steps``.

        Returns:
            The timeline.

        Raises:
            ConfigError: ``max_steps`` is negative or no whole number; a ``ValueError``.
        """
        for _ in range(whole_number("max_steps", max_steps, 0)):
            if self.step() is None:
                break
        return self.timeline

    def outcomes(self) -> NDArray[Any]:
        """Return what came of each request, REQUEST (num_requests,), for `sched_env.metrics`.

        A step counts as a second; see `sched_env.simulator.decode_outcomes`.
        """
        return decode_outcomes(self.queue, self._arrivals, self.timeline, self._clocks)

    def _schedule_key(self, req: RequestState) -> tuple[int, ...]:
        """Return the place of a request in the service order, smaller first.

        Slack (1,000,000,000 without a deadline or under another policy), 0 in prefill, 0 for a
        cache hit, minus the effective priority, total length, id.
        """
        return tuple(map(int, core.schedule_key(self._machine[0], as_rows([req])[0])))

    def _effective_priority(self, req: RequestState) -> int:
        """Return the priority, raised by what the request waited under ``aging``."""
        return int(core.effective_priority(self._machine[0], as_rows([req])[0]))

    def _remaining_steps(self, req: RequestState) -> int:
        """Return the steps that a request still needs."""
        return int(core.remaining_steps(as_rows([req])[0]))

    def _ensure_capacity(self, challenger: RequestState) -> int | None:
        """Admit a request if it can be; return the id of the one preempted for it, if any."""
        is_queued = any(challenger is request for request in self.queue)
        everyone = self.queue if is_queued else [*self.queue, challenger]
        row = next(row for row, request in enumerate(everyone) if request is challenger)
        requests = as_rows(everyone)
        victim = core.ensure_capacity(self._machine[0], requests, row)
        take_row(challenger, requests[row])
        if victim == core.NONE:
            return None
        take_row(self.queue[victim], requests[victim])
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
                take_row(self.queue[row], requests[row])
