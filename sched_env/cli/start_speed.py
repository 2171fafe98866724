"""How long commands and environments take to start, in processes of their own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

from sched_env.errors import SchedEnvError

_HELP = (
    "import sys; from sched_env.cli.main import main; sys.argv = ['sched-env']; main(['--help'])"
)
_MAKE = """
import gymnasium, sched_env
envs = gymnasium.make_vec("sched_env/ContinuousBatching-v0", num_envs=4)
"""
_STEP = "envs.reset(seed=0); envs.step(envs.action_space.sample() * 0 + 3)\n"
_END = "import os; os._exit(0)\n"  # what Python tidies up when it ends is no part of a start


def start_times(with_compiling: bool) -> list[tuple[str, float]]:
    """Return names and seconds of processor time.

    Args:
        with_compiling: Whether to start with an empty cache of kernels as well.
    """
    with tempfile.TemporaryDirectory() as folder:
        # As on any machine: modules are kept compiled, also where this one was told otherwise.
        kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        _seconds(_MAKE + _STEP + _END, **kept)  # fills the caches
        _seconds(_HELP, **kept)
        times = [
            ("sched-env --help", _seconds(_HELP, **kept)),
            ("import, make_vec, reset and step", _seconds(_MAKE + _STEP + _END, **kept)),
        ]
    if with_compiling:
        with tempfile.TemporaryDirectory() as folder:
            times.append(("first make_vec, compiling", _seconds(_MAKE, SCHED_ENV_CACHE_DIR=folder)))
    return times


def _seconds(code: str, **environment: str) -> float:
    """Return the processor time of a Python process.

    Raises:
        SchedEnvError: It failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise SchedEnvError(f"a process that was to be timed failed: {reason[0]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
