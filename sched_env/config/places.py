"""Places in the file system that a user names, whatever the text."""

from __future__ import annotations

from pathlib import Path

from sched_env.errors import ConfigError


def exists(place: str | Path) -> bool:
    """Tell whether there is a file or folder; there is none of a name that no file can have."""
    try:
        return str(place) != "" and Path(place).exists()
    except OSError:  # a name that is too long, or a folder that may not be entered
        return False


def expanded(text: str) -> Path:
    """Return the path that a text stands for, ``~`` and ``~user`` being home folders.

    Raises:
        ConfigError: nobody is called so.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{text}: {str(error).lower()} write the folder out") from None
