"""A small trace and small environments over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a trace of 300 requests in 60 s, with bursts."""
    rng = np.random.default_rng(21)
    times = np.sort(rng.choice(np.arange(0.0, 60.0, 5.0), 300) + rng.exponential(1.5, 300))
    rows = zip(times - times[0], rng.integers(5, 700, 300), rng.integers(1, 60, 300), strict=True)
    path: Path = tmp_path_factory.mktemp("traces") / "small.csv"
    lines = [f"{time:.4f},{prompt},{output}" for time, prompt, output in rows]
    path.write_text("\n".join(["arrival_time_s,prompt_tokens,output_tokens", *lines]) + "\n")
    return str(path)


@pytest.fixture(scope="session")
def config_with(trace_file: str) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a small configuration; its arguments change sections."""

    def make(**sections: dict[str, Any]) -> dict[str, Any]:
        config: dict[str, Any] = {
            "trace": trace_file,
            "split": "all",
            "scheduler": {"num_blocks": 120, "max_num_seqs": 8, "max_num_batched_tokens": 512},
            "service": {},
            "observation": {"num_waiting_slots": 5, "num_running_slots": 3},
            "reward": {"waiting": 0.1, "recompute": 0.05},
            "episode": {"horizon_s": 6.0, "load": [0.8, 1.6]},
        }
        for name, section in sections.items():
            config[name] = {**config[name], **section} if isinstance(section, dict) else section
        return config

    return make


@pytest.fixture
def config(config_with: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Return the small configuration."""
    return config_with()
