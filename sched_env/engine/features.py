"""The features of a request that do not change while it waits."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from sched_env.compiled import compiled_part
from sched_env.engine.sizes import blocks_for, decode_tokens_left, num_tokens, tokens_left

DENSITY = 3
"""Place of the density among the resting features."""


@compiled_part
def rise(x: float, half: float) -> float:
    """Return x / (|x| + half): 0 at 0, 1/2 at ``half``, towards 1 beyond."""
    return x / (abs(x) + half)


@compiled_part
def write_resting(state: Any, request: Any, out: NDArray[Any], start: int) -> None:
    """Write the resting features to ``out[start:]``; ``layout.py`` names them."""
    decode = decode_tokens_left(request)
    work_s = request.lone_prefill_s + decode * request.token_time_s
    density = math.log(max(request.weight, 1e-6) / max(work_s, 1e-6)) / 5.0
    blocks = blocks_for(num_tokens(request), state.block_size)
    out[start] = rise(tokens_left(request), 512.0)
    out[start + 1] = rise(decode, 128.0)
    out[start + 2] = rise(request.weight, 2.0)
    out[start + DENSITY] = min(max(density, -10.0), 10.0)
    out[start + 4] = min(blocks / state.num_blocks, 2.0)
    out[start + 5] = request.preemptible
    out[start + 6] = rise(request.num_computed_tokens, 1024.0)
    out[start + 7] = rise(request.num_output_tokens, 64.0)
    out[start + 8] = rise(request.num_preemptions, 1.0)
    out[start + 9] = rise(request.tpot_slo_s, 0.1)
