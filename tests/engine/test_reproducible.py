"""One seed, the same bytes: in every process, compiled or as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.small_run import fingerprints


def prints_of(repository: Path, **variables: str) -> dict[str, str]:
    """Return the fingerprints of the small run in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.engine.small_run"],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    pairs = (line.split(": ") for line in run.stdout.splitlines())
    return dict(tuple(pair) for pair in pairs)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_processes_agree_to_the_byte(repository: Path, hash_seed: str) -> None:
    assert prints_of(repository, PYTHONHASHSEED=hash_seed) == fingerprints()


def test_plain_python_agrees_with_the_compiled_core_to_the_byte(repository: Path) -> None:
    assert prints_of(repository, NUMBA_DISABLE_JIT="1") == fingerprints()
