"""What a step-time model says about measured steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.compiled import compiled
from sched_env.cost.measured import Floats, MeasuredSteps
from sched_env.cost.step_time import step_time_s

_MS_PER_S = 1e3


def formula_ms(cost: NDArray[Any], steps: MeasuredSteps) -> Floats:
    """Return each step's time by the formula alone, in ms, without table and engine overhead."""
    bare = cost.copy()
    bare["has_table"] = 0
    return kernel_ms(bare, steps)


def kernel_ms(cost: NDArray[Any], steps: MeasuredSteps) -> Floats:
    """Return each step's time in ms without the engine's overhead, float64 (n,).

    Args:
        cost: COST (1,).
        steps: What is to be predicted.
    """
    bare = cost.copy()
    bare["overhead_per_step_s"] = bare["overhead_per_sequence_s"] = 0.0
    times_s = np.empty(len(steps))
    _predict(
        bare.view(np.recarray)[0],
        steps.n_decode,
        steps.context_tokens,
        steps.prefill_tokens,
        steps.prefill_past,
        times_s,
    )
    return times_s * _MS_PER_S


@compiled
def _predict(cost: Any, n_decode: Any, context: Any, chunk: Any, past: Any, times_s: Any) -> None:
    for i in range(n_decode.size):
        paid = max(chunk[i], cost.mixed_min_chunk_tokens) if chunk[i] > 0 else 0.0
        attention = paid * (past[i] + 0.5 * chunk[i])
        times_s[i] = step_time_s(cost, n_decode[i], context[i], chunk[i], attention, 1)
