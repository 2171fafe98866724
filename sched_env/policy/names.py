"""The registry: which heuristic has which name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sched_env.errors import PolicyError


class Registered(Protocol):
    """What the registry needs to know of a heuristic."""

    @property
    def name(self) -> str:
        """The name it is registered under."""
        ...

    @property
    def function(self) -> Callable[..., Any]:
        """Its key function, by whose module and name it is told from others."""
        ...


_registered: dict[str, Any] = {}


def register(policy: Registered) -> None:
    """Add a heuristic to the registry.

    Registering a function again from the same module and name, as a reloaded module does,
    replaces the former.

    Raises:
        PolicyError: If another function holds the name.
    """
    holder = _registered.get(policy.name)
    if holder is not None and _origin(holder) != _origin(policy):
        raise PolicyError(
            f"policy name {policy.name!r} is taken by {_origin(holder)}: "
            f"give {_origin(policy)} another name"
        )
    _registered[policy.name] = policy


def known_policies() -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(sorted(_registered))


def find_registered(name: str) -> Any:
    """Return the heuristic of that name, or ``None``."""
    return _registered.get(name)


def _origin(policy: Registered) -> str:
    return f"{policy.function.__module__}.{policy.function.__qualname__}"
