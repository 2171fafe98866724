"""What this machine is: its processor and its memory."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path

_MEMORY_ELSEWHERE = 2**35  # on systems that do not tell


def processor_name() -> str:
    """Return the product's name."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@functools.cache
def memory_bytes() -> int:
    """Return the size of its memory in bytes."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return _MEMORY_ELSEWHERE
