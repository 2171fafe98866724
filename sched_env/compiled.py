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
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba

from sched_env.code_parts import (
    EntryCompiler,
    Part,
    PartCompiler,
    RecordEntryCompiler,
    called_as_part,
)

_COMPILES = not numba.config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
_PACKAGE = Path(__file__).resolve().parent
_CORE_FOLDERS = ("engine", "cost", "workload")
_CALLED_FROM = {"simulator": ("policy",), "env": ("metrics",)}  # beyond the core
_F = TypeVar("_F", bound=Callable[..., Any])


@functools.cache
def _source_hash(folder: str) -> str:
    """Return a hash of all that a kernel defined in ``folder`` can depend on."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update((_PACKAGE / "code_parts.py").read_bytes())
    digest.update(f"{numba.__version__}|{llvmlite.binding.get_host_cpu_name()}".encode())
    for name in sorted({*_CORE_FOLDERS, *_CALLED_FROM.get(folder, ()), folder}):
        digest.update(_folder_hash(_PACKAGE / name))
    return digest.hexdigest()[:16]


@functools.cache
def _folder_hash(folder: Path) -> bytes:
    """Return a hash of the sources in a folder that kernels can depend on."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        text = path.read_bytes()
        if folder.name == "engine" or b"sched_env.compiled" in text:
            digest.update(path.name.encode())
            digest.update(text)
    return digest.digest()


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _is_private(folder: Path) -> bool:
    """Make a folder among those of other users; tell whether it is ours alone to write to."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()  # a link is somebody's own choice of a place
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True  # elsewhere the temporary folder is the user's own
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) != 0
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not is_open


@functools.cache
def cache_folder(folder: str = "engine") -> Path | None:
    """Return where kernels of a package folder are cached, or ``None`` if nothing is writable.

    ``SCHED_ENV_CACHE_DIR`` comes first, then ``XDG_CACHE_HOME`` or ``~/.cache``, then the system's
    temporary folder, if nobody else can write to our part of it: what lies there is run.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    roots = [os.environ.get("SCHED_ENV_CACHE_DIR"), os.path.join(home, "sched-env")]
    name = _source_hash(folder)
    for root in filter(None, roots):
        place = Path(root) / name
        if _is_writable(place):
            return place
    user = getattr(os, "getuid", lambda: "user")()
    shared = Path(tempfile.gettempdir(), f"sched-env-{user}")
    return shared / name if _is_private(shared) and _is_writable(shared / name) else None


def compiled(function: _F) -> _F:
    """Compile ``function`` on its first call from Python and cache it.

    For compiled callers it is a part. Loops of an entry of the engine stay loops (see
    ``code_parts.py``). ``NUMBA_DISABLE_JIT=1`` leaves the function plain Python.
    """
    return _entry(function)


def compiled_without_gil(function: _F) -> _F:
    """Do the same with a function that lets other Python threads run meanwhile."""
    return _entry(function, nogil=True)


def _entry(function: Any, **options: Any) -> Any:
    entry = _cached(function, **options)
    if _COMPILES:
        called_as_part(entry, Part(lambda: _njit_part(function)))
    return entry


def _cached(function: Any, **options: Any) -> Any:
    folder = _folder_of(function)
    options["pipeline_class"] = RecordEntryCompiler if folder == "engine" else EntryCompiler
    place = cache_folder(folder)
    if place is None:
        return _njit(function, **options)
    before = numba.config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    numba.config.CACHE_DIR = str(place)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return _njit(function, cache=True, **options)
    finally:
        numba.config.CACHE_DIR = before  # pyright: ignore[reportAttributeAccessIssue]


def compiled_part(function: _F) -> _F:
    """Compile ``function`` as a part of compiled callers: not callable from Python, not cached."""
    if not _COMPILES:
        return function
    part: Any = Part(lambda: _njit_part(function))
    return part


def _njit_part(function: Any) -> Any:
    return _njit(
        function, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=PartCompiler
    )


def compiled_inline(function: _F) -> _F:
    """Compile ``function`` into each of its callers: for the body of a hot loop."""
    return _njit(function, inline="always")


def _njit(function: Any, **options: Any) -> Any:
    return numba.njit(error_model="numpy", **options)(function)


def _folder_of(function: Callable[..., Any]) -> str:
    parts = function.__module__.split(".")
    return parts[1] if len(parts) > 2 and parts[0] == "sched_env" else "engine"
