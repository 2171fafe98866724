"""The trace of an environment, read as its service classes are called."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from sched_env.workload.readers import read_trace

if TYPE_CHECKING:
    from sched_env.config import EnvConfig
    from sched_env.workload.table import RequestTable


def read_env_trace(
    env: EnvConfig, path_or_name: str | PathLike[str], *, seed: int = 0
) -> RequestTable:
    """Read a trace whose ``service_class`` column may use the names of the environment's classes.

    Args:
        env: whose service classes.
        path_or_name: as ``read_trace`` takes it.
        seed: draws an embedded workload.

    Raises:
        TraceError: the file cannot be read, or names a class that the environment has not.
    """
    names = tuple(one.name for one in env.service.classes)
    return read_trace(path_or_name, service_class_names=names, seed=seed)
