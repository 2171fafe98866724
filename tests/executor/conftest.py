from __future__ import annotations

import pytest


@pytest.fixture
def cuda() -> str:
    """Return the CUDA device, or skip the test where there is none."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return "cuda"
