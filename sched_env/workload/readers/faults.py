"""Messages about trace files: file, place, column, what was found, what is wanted, on one line."""

from __future__ import annotations

from sched_env.errors import TraceError

_MAX_SHOWN = 60


def shown(value: object) -> str:
    """Return ``repr(value)`` on one line, shortened to 60 characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 4] + "...'"


def fault(name: str, place: str, column: str, problem: str, remedy: str = "") -> TraceError:
    """Return the error for one value: ``name, place, column X: problem; remedy``."""
    remedy = remedy or "correct the value or delete the row"
    return TraceError(f"{name}, {place}, column {column}: {problem}; {remedy}")
