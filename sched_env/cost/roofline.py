"""Step times from a spec sheet alone: bytes over bandwidth, operations over FLOP/s.

Every step reads all weights once, or multiplies each new token by them, whichever takes longer
(Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009); then attention reads the context
of the decoding sequences, and multiplies each new token of a prompt by those before it. This is the
second regime of the two-regime formula with a sharp corner, for steps without prefill too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config.cost import RooflineCost
from sched_env.cost.hardware import (
    BYTES_PER_NUMBER,
    flops_per_s,
    gpu_spec,
    kv_bytes_per_token,
    layer_parameters,
    model_spec,
    num_parameters,
)
from sched_env.cost.step_time import COST, SHARP

_FLOPS_PER_WEIGHT = 2  # one multiplication and one addition


def roofline_cost(config: RooflineCost) -> NDArray[Any]:
    """Return the COST array (1,) of a spec sheet, without engine overhead.

    Raises:
        UnknownNameError: No GPU or model has that name.
        ConfigError: The GPU does not compute in that precision.
    """
    gpu, model = gpu_spec(config.gpu), model_spec(config.model)
    bytes_per_s = gpu.bandwidth_gb_s * 1e9 * config.bandwidth_efficiency * config.tp
    operations_per_s = flops_per_s(gpu, config.precision) * config.compute_efficiency * config.tp
    embedding = model.vocab_size * model.hidden_size
    num_read = num_parameters(model) - (0 if model.tie_word_embeddings else embedding)
    weights_s = num_read * BYTES_PER_NUMBER[config.precision] / bytes_per_s
    token_s = _FLOPS_PER_WEIGHT * layer_parameters(model) / operations_per_s
    heads = model.num_layers * model.num_attention_heads * model.head_size
    kv_bytes = kv_bytes_per_token(model, config.kv_cache_precision)
    cost = np.zeros(1, COST)
    cost["has_one_regime"] = 1
    cost["mixed_smoothness"] = SHARP
    cost["mixed_tile_tokens"] = 1.0
    cost["mixed_min_chunk_tokens"] = 1.0
    cost["mixed_per_token_s"] = token_s
    cost["mixed_knee_tokens"] = weights_s / token_s
    cost["mixed_per_context_token_s"] = kv_bytes / bytes_per_s
    cost["mixed_per_attention_s"] = 2 * _FLOPS_PER_WEIGHT * heads / operations_per_s
    return cost
