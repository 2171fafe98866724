"""Imports that need an extra: a missing package becomes a message that says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sched_env.errors import MissingExtraError


@contextmanager
def importing_extra(extra: str) -> Iterator[None]:
    """Turn a failing import of a third party's package into ``MissingExtraError``.

    Raises:
        MissingExtraError: a package that comes with ``extra`` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("", "sched_env"):
            raise
        raise MissingExtraError(extra, name) from None
