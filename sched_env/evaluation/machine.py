"""The machine and the versions that a result was made with."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from typing import Any

import sched_env
from sched_env.hardware import processor_name

_PACKAGES = (
    "gymnasium",
    "numba",
    "llvmlite",
    "numpy",
    "pyarrow",
    "pydantic",
    "safetensors",
    "torch",
    "stable-baselines3",
    "sb3-contrib",
)


def describe_machine() -> dict[str, Any]:
    """Return versions, processor and time, for ``environment.json``.

    Packages are looked up in the installed metadata, so that none is imported.
    """
    return {
        "sched_env": sched_env.__version__,
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "platform": platform.platform(),
        "processor": processor_name(),
        "num_cpus": num_cpus(),
        "created_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
