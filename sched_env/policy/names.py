"""The registry: which policy has which name."""

from __future__ import annotations

from typing import Any, Protocol

from sched_env.errors import PolicyError


class Registered(Protocol):
    """What the registry needs to know of a policy."""

    @property
    def name(self) -> str:
        """The name it is registered under."""
        ...


_registered: dict[str, Any] = {}


def register(policy: Registered) -> None:
    """Add a policy to the registry.

    Registering again from the same place, as a reloaded module does, replaces the former.

    Raises:
        PolicyError: If a policy from another place holds the name.
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
    """Return the policy of that name, or ``None``."""
    return _registered.get(name)


def _origin(policy: Registered) -> str:
    """Return where in the code a policy is made: by its key function, or by what holds its name."""
    made_by = getattr(policy, "function", type(policy))
    switches = getattr(policy, "scheduler", None)
    return f"{made_by.__module__}.{made_by.__qualname__}{f' with {switches}' if switches else ''}"
