"""One process at a time writes to a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from sched_env.errors import SchedEnvError

try:
    import fcntl
except ImportError:  # no POSIX system
    fcntl = None


def lock_folder(file: BinaryIO, folder: Path, other: str) -> None:
    """Keep others out of a folder for as long as ``file``, which lies in it, stays open.

    Nobody is kept out where the system or the file system knows no locks.

    Args:
        file: Open for writing; every process that writes to the folder locks the same one.
        folder: For the message.
        other: Who else may hold it, in words.

    Raises:
        SchedEnvError: Another process holds it.
    """
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SchedEnvError(
            f"{other} is writing to {folder}: wait for it, or name another folder"
        ) from None
    except OSError:  # a file system without locks
        return
