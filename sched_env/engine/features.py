"""The features of a request that rest while it waits or, but for its progress, while it runs."""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.rises import rises
from sched_env.engine.sizes import decode_tokens_left


@compiled_part
def density(request: Any) -> float:
    """Return log(weight / predicted work) / 5 of a request that begins to wait."""
    work_s = request.lone_prefill_s + decode_tokens_left(request) * request.token_time_s
    logarithm = math.log(max(request.weight, 1e-6) / max(work_s, 1e-6)) / 5.0
    return min(max(logarithm, -10.0), 10.0)


@compiled_part
def show_rest(request: Any, resting: Any) -> None:
    """Write what neither waiting nor running changes, to a RESTING record."""
    shown = rises((request.weight, request.num_preemptions, request.tpot_slo_s), (2.0, 1.0, 0.1))
    resting.weight, resting.preemptions, resting.tpot_slo = shown
    resting.density = request.density


@compiled_part
def show_progress(
    left: int, decode_left: float, part_of_pool: float, computed: int, outputs: int, resting: Any
) -> None:
    """Write what changes while a request runs, to a RESTING record."""
    shown = rises((left, decode_left, computed, outputs), (512.0, 128.0, 1024.0, 64.0))
    resting.prefill_left, resting.decode_left, resting.computed, resting.outputs = shown
    resting.blocks_of_pool = min(part_of_pool, 2.0)
