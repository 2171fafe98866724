"""Build the C core with the machine's own compiler, and call it on the memory of a world."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from c_core.header import header_text
from sched_env.compiled import cache_folder
from sched_env.engine.keycall import IS_COMPILED
from sched_env.engine.world import World
from sched_env.errors import ConfigError

_SOURCES = Path(__file__).resolve().parent
_FLAGS = (
    *("-std=c11", "-O3", "-march=native", "-shared", "-fPIC", "-Wall", "-Wextra"),
    # No sum and product become one rounding, nor is anything else done that would change a bit.
    *("-ffp-contract=off", "-fno-fast-math"),
    # LLVM takes both for granted: with them minima and maxima are no branches.
    *("-fno-math-errno", "-fno-trapping-math"),
    "-fno-tree-vectorize",  # vectors gathered from records 32 bytes apart lose 4 %
)
_OFF = (
    *("async_scheduling", "enable_prefix_caching", "swaps", "live", "may_have_lanes"),
    *("counts_classes", "privileged", "resume_first", "reserve_outputs"),
    *("long_prefill_token_threshold",),
)
_COST_OFF = ("has_table", "has_one_regime")
_ON = ("enable_chunked_prefill", "num_waiting_slots", "num_running_slots")


def compiler() -> list[str] | None:
    """Return the command of the C compiler, ``$CC`` or ``cc``; ``None`` where there is none."""
    command = shlex.split(os.environ.get("CC", "cc"))
    return command if command and shutil.which(command[0]) else None


@functools.cache
def core() -> ctypes.CDLL:
    """Return the C core, built anew where a source, a record or the compiler has changed.

    Raises:
        ConfigError: There is no C compiler, it fails, or the engine runs as plain Python.
    """
    if not IS_COMPILED:
        raise ConfigError("the C core calls the compiled order key: unset NUMBA_DISABLE_JIT")
    command = compiler()
    if command is None:
        raise ConfigError(
            f"no C compiler {os.environ.get('CC', 'cc')!r}: install one (gcc or clang), or set CC"
        )
    library = ctypes.CDLL(str(_built(command)))
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    buffers = (pointer, number, pointer, number, pointer)
    library.step_batch.argtypes = (number, number, number, pointer, *buffers)
    library.step_batch.restype = number
    return library


def _built(command: list[str]) -> Path:
    """Return the shared library of the sources as they are."""
    header = header_text()
    digest = hashlib.sha256(f"{command}{_FLAGS}{header}".encode())
    for path in sorted(_SOURCES.glob("*.[ch]")):
        digest.update(path.read_bytes())
    folder = cache_folder() or Path(tempfile.mkdtemp(prefix="sched-env-"))
    library = folder / f"c_core_{digest.hexdigest()[:16]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            (Path(scratch) / "records.h").write_text(header, encoding="utf-8")
            made = Path(scratch) / library.name
            what = [str(_SOURCES / "core.c"), "-I", scratch, "-o", str(made), "-lm"]
            done = subprocess.run(
                [*command, *_FLAGS, *what], check=False, capture_output=True, text=True
            )
            if done.returncode:
                raise ConfigError(f"{command[0]} cannot build the C core:\n{done.stderr.strip()}")
            made.replace(library)
    return library


def check_world(world: World) -> None:
    """Refuse a world whose switches the C core does not know.

    Raises:
        ConfigError: One of them is set; it is named.
    """
    state, cost = world.state[0], world.arrays.cost[0]
    wrong = [name for name in _OFF if state[name]] + [name for name in _COST_OFF if cost[name]]
    wrong += [name for name in _ON if not state[name]]
    wrong += ["prefill_schedule_interval"] * bool(state["prefill_schedule_interval"] > 1)
    wrong += ["max_num_seqs > max_num_batched_tokens"] * bool(
        state["max_num_seqs"] > state["max_num_batched_tokens"]
    )
    wrong += ["an event log"] * bool(world.arrays.events.shape[1])
    wrong += ["inter-token latencies"] * bool(world.itl_counts.shape[1])
    if wrong:
        raise ConfigError(
            f"the C core does not know a server with this setting of {', '.join(wrong)}: it does "
            "what the batched environment does under its default rules"
        )


def step(
    world: World,
    actions: NDArray[Any],
    observations: NDArray[Any],
    masks: NDArray[Any],
    results: NDArray[Any],
) -> int:
    """Take one decision in each server, as ``World.step`` does; return how many flags it set.

    Args:
        world: What :func:`check_world` lets pass.
        actions: int64 (N,).
        observations: float32 (N, size), to be filled.
        masks: int8 (N, L + K + J), the legal actions before and after.
        results: float64 (6, N), to be filled.

    Raises:
        RuntimeError: The scheduler would have preempted by itself, which decisions rule out.
    """
    num_flags = core().step_batch(
        world.address,
        0,
        world.num_servers,
        actions.ctypes.data,
        observations.ctypes.data,
        observations.shape[1],
        masks.ctypes.data,
        masks.shape[1],
        results.ctypes.data,
    )
    if num_flags < 0:
        raise RuntimeError("the scheduler would have preempted by itself")
    return num_flags
