"""The features of a request that rest while it waits or, but for its progress, while it runs."""

from __future__ import annotations

import math
from typing import Any

from sched_env.compiled import compiled_part
from sched_env.engine.sizes import decode_tokens_left


@compiled_part
def rise(x: float, half: float) -> float:
    """Return x / (|x| + half): 0 at 0, 1/2 at ``half``, towards 1 beyond."""
    return x / (abs(x) + half)


@compiled_part
def density(request: Any) -> float:
    """Return log(weight / predicted work) / 5 of a request that begins to wait."""
    work_s = request.lone_prefill_s + decode_tokens_left(request) * request.token_time_s
    logarithm = math.log(max(request.weight, 1e-6) / max(work_s, 1e-6)) / 5.0
    return min(max(logarithm, -10.0), 10.0)


@compiled_part
def show_rest(request: Any, resting: Any) -> None:
    """Write what neither waiting nor running changes, to a RESTING record."""
    resting.weight = rise(request.weight, 2.0)
    resting.density = request.density
    resting.preemptions = rise(request.num_preemptions, 1.0)
    resting.tpot_slo = rise(request.tpot_slo_s, 0.1)


@compiled_part
def show_progress(
    left: int, decode_left: float, part_of_pool: float, computed: int, outputs: int, resting: Any
) -> None:
    """Write what changes while a request runs, to a RESTING record."""
    resting.prefill_left = rise(left, 512.0)
    resting.decode_left = rise(decode_left, 128.0)
    resting.blocks_of_pool = min(part_of_pool, 2.0)
    resting.computed = rise(computed, 1024.0)
    resting.outputs = rise(outputs, 64.0)
