"""Random settings of the scheduler's switches."""

from __future__ import annotations

from typing import Any

import numpy as np

VICTIMS = ("tail", "priority", "least_computed", "most_blocks_per_token", "random")


def random_switches(rng: np.random.Generator, share: float = 0.25) -> dict[str, Any]:
    """Return fields of SchedulerConfig, each set with a chance of ``share``."""
    every: dict[str, Any] = {
        "rules": "p07",
        "policy": "priority",
        "watermark": float(rng.uniform(0.01, 0.3)),
        "long_prefill_token_threshold": int(rng.integers(1, 20)),
        "enable_chunked_prefill": False,
        "prefill_schedule_interval": int(rng.integers(2, 6)),
        "async_scheduling": True,
        "enable_prefix_caching": True,
        "preemptive_priority": True,
        "resume_first": True,
        "victim": str(rng.choice(VICTIMS)),
        "victim_tie": "last",
        "preemption": "swap",
        "no_evict": str(rng.choice(["predicted", "max"])),
        "skip_ahead": int(rng.integers(1, 4)),
        "max_num_active_seqs": 1,
    }
    chosen = {name: every[name] for name in every if rng.random() < share}
    if "preemption" in chosen:
        chosen["swap_s_per_block"] = 0.001
    if "long_prefill_token_threshold" in chosen:
        chosen["long_prefill_token_threshold_adaptive"] = bool(rng.random() < 0.5)
    return chosen
