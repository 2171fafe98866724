"""Comma-separated values of one option."""

from __future__ import annotations

from sched_env.config.env import OWN_RATE
from sched_env.errors import ConfigError


def names(text: str, option: str) -> list[str]:
    """Return the names in ``a,b,c``.

    Raises:
        ConfigError: there are none, or one is empty.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"{option} {text!r}: give names separated by commas, as in fcfs,sjf")
    return parts


def loads(text: str, option: str = "--load") -> list[float | None]:
    """Return the loads in ``0.8,1.0``; ``own`` stands for the trace's own rate (None).

    Raises:
        ConfigError: there are none, or one is no number.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"{option} {text!r}: give numbers separated by commas, as in 0.8,1.0")
    return [load(part, option) for part in parts]


def load(text: str, option: str = "--load") -> float | None:
    """Return one load, or None for ``own``.

    Raises:
        ConfigError: it is no number.
    """
    if text == OWN_RATE:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r}: give a number, where 1.0 is what fcfs can drain, or {OWN_RATE!r}"
        ) from None
