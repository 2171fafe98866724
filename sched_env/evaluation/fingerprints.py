"""Hashes of what decides a result: by them an interrupted evaluation knows its own rows."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sched_env
from sched_env.policy.runtime import ExportedPolicy
from sched_env.workload.table import COLUMN_DTYPES, RequestTable


def table_sha256(table: RequestTable) -> str:
    """Return a hash of the columns that a simulation reads."""
    digest = hashlib.sha256()
    for name in COLUMN_DTYPES:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(getattr(table, name)).tobytes())
    return digest.hexdigest()


def weights_sha256(policy: ExportedPolicy) -> str:
    """Return the hash of the weights file, or of the tensors of a policy made in memory."""
    if policy.weights_sha256:
        return policy.weights_sha256
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.weights.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()


def function_sha256(function: Callable[..., Any]) -> str:
    """Return a hash of the file that defines a function, or of its byte code if there is none."""
    try:
        source = Path(inspect.getsourcefile(function) or "").read_bytes()
    except (OSError, TypeError):
        code = inspect.unwrap(function).__code__
        source = code.co_code + repr((code.co_names, code.co_consts)).encode()
    return hashlib.sha256(source).hexdigest()


@functools.cache
def package_sha256() -> str:
    """Return a hash of the package's own Python sources."""
    package = Path(sched_env.__file__).parent
    digest = hashlib.sha256()
    folders = [package, *sorted(path for path in package.iterdir() if path.is_dir())]
    for folder in folders:
        pattern = "*.py" if folder == package else "**/*.py"
        for path in sorted(folder.resolve().glob(pattern)):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
