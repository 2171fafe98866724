"""What every policy is: something with a name that decides for a scheduler.

A policy ranks the waiting requests, picks the victim when blocks run short, and sets how much of
the token budget prefill may take. There are two kinds:

- a `Heuristic` ranks with a key function, smaller first, compiled into the core. Requests are
  admitted in that order until one does not fit, victims follow the server's ``victim`` rule, and
  the budget is the full one.
- an `ExportedPolicy` is a network, or a linear score, that reads an observation and a mask, and
  answers with one action: proceed at a prefill level, admit a waiting slot, or preempt a running
  slot.

Both rule by the same decisions, taken before the scheduler's own rules run unchanged. So neither
can break the server's accounting, and either can drive a real server from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

PolicyKind = Literal["heuristic", "tuned", "network"]
ParameterValue = float | int | str | bool | None
KeyFunction = Callable[[Any, float], tuple[float, float] | float]
"""``key(request, now_s)``: ``request`` is a REQUEST record, smaller keys are served first."""


@runtime_checkable
class Policy(Protocol):
    """What the simulator, the evaluation and the reports need to know of any policy."""

    @property
    def name(self) -> str:
        """The name that results are reported under."""
        ...

    @property
    def kind(self) -> PolicyKind:
        """``"heuristic"``, ``"tuned"`` or ``"network"``."""
        ...

    @property
    def reference(self) -> str:
        """Where the policy comes from: a paper, a system, or a training run."""
        ...

    @property
    def parameters(self) -> Mapping[str, ParameterValue]:
        """The numbers that make this policy differ from its siblings."""
        ...

    @property
    def privileged(self) -> bool:
        """True if the policy reads what no server can know, such as the true output length."""
        ...
