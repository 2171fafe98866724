"""The ``compiled`` decorator: numba's ``njit`` with a cache that cannot go stale.

numba keys its cache on the file of one function, so a changed constant or callee in another
module would load an old kernel. Here the cache folder is named by a hash over every source file
whose functions are compiled, numba's version and the CPU. Where no folder can be written,
functions are compiled without a cache.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba

_PACKAGE = Path(__file__).resolve().parent
_COMPILED_FOLDERS = ("engine", "workload", "cost", "policy", "baselines")
_F = TypeVar("_F", bound=Callable[..., Any])


def _source_hash() -> str:
    digest = hashlib.sha256()
    digest.update(f"{numba.__version__}|{llvmlite.binding.get_host_cpu_name()}".encode())
    for folder in _COMPILED_FOLDERS:
        for path in sorted((_PACKAGE / folder).glob("*.py")):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of compiled kernels, or ``None`` where nothing can be written.

    ``SCHED_ENV_CACHE_DIR`` comes first, then ``XDG_CACHE_HOME`` or ``~/.cache``, then the system's
    temporary folder.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    roots = [os.environ.get("SCHED_ENV_CACHE_DIR"), os.path.join(home, "sched-env")]
    user = getattr(os, "getuid", lambda: "user")()
    roots.append(os.path.join(tempfile.gettempdir(), f"sched-env-{user}"))
    name = _source_hash()
    for root in filter(None, roots):
        folder = Path(root) / name
        if _is_writable(folder):
            return folder
    return None


def compiled(function: _F) -> _F:
    """Compile ``function`` on its first call (``NUMBA_DISABLE_JIT=1`` leaves it plain Python)."""
    return _compile(function, inline="never")


def compiled_inline(function: _F) -> _F:
    """Compile ``function`` into its callers: for one that returns records, which numba cannot."""
    return _compile(function, inline="always")


def _compile(function: _F, inline: str) -> _F:
    folder = cache_folder()
    if folder is None:
        return numba.njit(error_model="numpy", inline=inline)(function)
    before = numba.config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    numba.config.CACHE_DIR = str(folder)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return numba.njit(cache=True, error_model="numpy", inline=inline)(function)
    finally:
        numba.config.CACHE_DIR = before  # pyright: ignore[reportAttributeAccessIssue]
