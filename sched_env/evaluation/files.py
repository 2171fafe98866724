"""Files that are whole or absent: written beside their place, then renamed into it."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sched_env.errors import ConfigError

_LEFTOVER = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")
"""How `replacing` calls what it has not finished; the eight characters are those of mkstemp."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place if the block succeeds.

    A process that is killed midway, or a machine that stops, leaves the file at ``path`` as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp makes files that only the owner can read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of `replacing` that a process left here when it was killed."""
    for path in folder.iterdir():
        if _LEFTOVER.fullmatch(path.name) and path.is_file():
            path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in one piece; NaN and infinities become null."""
    write_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


_REMEDY = "restore it, or make it again in another folder"


def read_json_mapping(path: Path, remedy: str = _REMEDY) -> dict[str, Any]:
    """Read a JSON file that holds one object, as a command of ours wrote it.

    Args:
        path: Where it is.
        remedy: What to do where it is damaged.

    Raises:
        ConfigError: it cannot be read, is no JSON, or holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from None
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path} holds a {type(values).__name__}, and should hold an object of JSON; {remedy}"
        )
    return values


def finite(value: Any) -> Any:
    """Return the value with every NaN and infinity in it replaced by ``None``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
