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
from sched_env.config.cost import LiveCost, ServerCost
from sched_env.cost.models import cost_record, modelled
from sched_env.policy.runtime import ExportedPolicy
from sched_env.workload.table import COLUMN_DTYPES, RequestTable


def table_sha256(table: RequestTable) -> str:
    """Return a hash of everything that a simulation reads of a trace, its prefix ids included."""
    digest = hashlib.sha256()
    for name in COLUMN_DTYPES:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(getattr(table, name)).tobytes())
    ids = table.hash_ids
    if ids is not None:
        digest.update(f"hash_ids {ids.block_tokens}".encode())
        digest.update(ids.offsets.tobytes())
        digest.update(ids.values.tobytes())
    return digest.hexdigest()


def cost_sha256(cost: ServerCost) -> str | None:
    """Return a hash of the step times themselves, which a configuration may only name a file of.

    ``None`` stands for a measured clock without an estimate: nothing is known beforehand.

    Raises:
        SchedEnvError: A table or a profile cannot be read, or nothing has that name.
    """
    if isinstance(cost, LiveCost) and cost.estimate is None:
        return None
    return hashlib.sha256(cost_record(modelled(cost)).tobytes()).hexdigest()


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
    """Return a hash of the package's own Python sources and constants (its JSON files)."""
    package = Path(sched_env.__file__).parent
    digest = hashlib.sha256()
    folders = [package, *sorted(path for path in package.iterdir() if path.is_dir())]
    for folder in folders:
        files = folder.resolve().glob("*" if folder == package else "**/*")
        for path in sorted(one for one in files if one.suffix in (".py", ".json")):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
