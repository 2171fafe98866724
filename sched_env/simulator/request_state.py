"""A request of the teaching machine as a live object, and as the compiled core takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, index
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import decode_machine as core
from sched_env.engine.allocation import as_records
from sched_env.engine.records import STATUS_NAMES
from sched_env.errors import ConfigError, did_you_mean

Phase = Literal["prefill", "decode"]
RequestStatus = Literal["waiting", "running", "preempted", "finished"]

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
LARGEST = 2**60
"""Of all numbers, so that sums of two stay within 64 bits."""


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


def as_rows(queue: Sequence[RequestState]) -> NDArray[Any]:
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
        whole_number(name, getattr(request, name), -LARGEST)
    if request.deadline_step is not None:
        whole_number("deadline_step", request.deadline_step, -LARGEST)
    for name, known in (("phase", _PHASES), ("status", _STATUSES)):
        value = getattr(request, name)
        if not isinstance(value, str) or value not in known:
            hint = did_you_mean(str(value), known)
            raise ConfigError(
                f"{name} of request {request.request_id} is {value!r}.{hint} "
                f"Known: {', '.join(known)}"
            )


def take_row(request: RequestState, row: Any) -> None:
    """Write what the core changed into a live object."""
    request.phase = core.PHASE_NAMES[int(row["phase"])]  # pyright: ignore[reportAttributeAccessIssue]
    request.status = STATUS_NAMES[int(row["status"])]  # pyright: ignore[reportAttributeAccessIssue]
    request.generated_len = int(row["generated_len"])
    request.preemptions = int(row["preemptions"])
    request.admitted = bool(row["admitted"])


def whole_number(name: str, value: Any, lowest: int) -> int:
    """Return a whole number.

    Raises:
        ConfigError: It is none, or out of range.
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or not lowest <= number <= LARGEST:
        allowed = f"from {lowest} to {LARGEST}" if lowest >= 0 else f"up to ±{LARGEST}"
        raise ConfigError(f"{name} is {value!r}: give a whole number {allowed}")
    return number
