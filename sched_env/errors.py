"""What a user can do wrong, as exceptions with one root.

Each message says what was given, what is allowed and what to do. The command line prints the
message on one line and exits with code 2; states of a simulation never raise.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Sequence


class SchedEnvError(Exception):
    """Root of every error that a user of the package can cause."""


class ConfigError(SchedEnvError, ValueError):
    """A configuration value, key or file is wrong."""


class TraceError(SchedEnvError, ValueError):
    """A trace file cannot be read as requests."""


class PolicyError(SchedEnvError, ValueError):
    """A policy folder is damaged, or does not fit the environment it is used in."""


_MOST_NAMES = 60
"""Known names that an error lists."""


class UnknownNameError(SchedEnvError, LookupError):
    """A name stands for nothing known; the message offers the nearest one."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        super().__init__(
            f"no {kind} {name!r}.{did_you_mean(name, names)} "
            f"Known: {', '.join(names[:_MOST_NAMES])}{more}"
        )


class MissingExtraError(SchedEnvError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f'{package} is not installed: run pip install "sched-env[{extra}]"')


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or an empty string."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


def run_module(main: Callable[[Sequence[str]], None]) -> None:
    """Run a module as a command: a fault of its user ends it with one line and code 2."""
    try:
        main(sys.argv[1:])
    except SchedEnvError as fault:
        print(fault, file=sys.stderr)
        sys.exit(2)
