"""A few measured steps and a straight line through them: what a step takes, roughly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sched_env.executor.profile import measure_steps
from sched_env.executor.step_grid import StepPoint
from sched_env.executor.torch_executor import TorchExecutor

_CONTEXT_TOKENS = 128
_MOST_PREFILL_TOKENS = 256
_REPEATS = 5


@dataclass(frozen=True)
class StepLine:
    """Step time = base + decodes × per_decode + prefill tokens × per_prefill_token, in seconds."""

    base_s: float
    per_decode_s: float
    per_prefill_token_s: float


def calibrate(executor: TorchExecutor, max_num_seqs: int, max_num_batched_tokens: int) -> StepLine:
    """Measure one, some and most decodes, and short and long prefill chunks.

    Args:
        executor: The model; what it holds is forgotten.
        max_num_seqs: Most decoding sequences.
        max_num_batched_tokens: Most tokens of a step.
    """
    tables = executor.tables
    num_kv_tokens = tables.num_blocks * tables.block_size
    context = min(_CONTEXT_TOKENS, num_kv_tokens)
    blocks = -(-context // tables.block_size)
    most = max(min(max_num_seqs, max_num_batched_tokens, tables.num_blocks // blocks), 1)
    chunk = min(_MOST_PREFILL_TOKENS, max_num_batched_tokens, num_kv_tokens)
    decodes = [StepPoint(count, context, 0, 0) for count in sorted({1, -(-most // 2), most})]
    prefills = [StepPoint(0, 0, tokens, 0) for tokens in sorted({1, -(-chunk // 2), chunk})]
    steps = list(measure_steps(executor, [*decodes, *prefills], math.inf, repeats=_REPEATS))
    sizes = np.array([(1, step.point.num_decodes, step.point.prefill_tokens) for step in steps])
    times_s = np.array([step.step_time_s for step in steps])
    line = np.linalg.lstsq(sizes / times_s[:, None], np.ones(len(steps)), rcond=None)[0]
    base_s, per_decode_s, per_prefill_token_s = np.maximum(line, 0.0).tolist()
    return StepLine(max(base_s, 1e-9), per_decode_s, per_prefill_token_s)
