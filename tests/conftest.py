"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# Compiling a kernel on its first call would break any time limit, and a check that fails must fail
# again when it is run again.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Return the folder of shared reference data: ``$SCHED_ENV_SHARED``, or beside the checkout.

    Where it is missing, a test that asks for it fails on a CI machine and is skipped elsewhere.
    """
    given = os.environ.get("SCHED_ENV_SHARED")
    folder = Path(given) if given else REPOSITORY.parent / "shared"
    if folder.is_dir():
        return folder
    reason = f"no folder of reference data at {folder}: set SCHED_ENV_SHARED to it"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def cuda() -> str:
    """Return the CUDA device, or skip the test where there is none."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return "cuda"
