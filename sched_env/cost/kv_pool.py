"""How many KV blocks a GPU has room for, beside the weights and what the engine keeps free.

As vLLM does at start (vllm/v1/worker/gpu_worker.py, determine_available_memory): of
``gpu_memory_utilization`` times the memory, weights and the peak of activations are taken off, and
the rest is cut into blocks. The peak is measured there, and not known here: it is a parameter,
``reserve_bytes``, whose default was measured once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sched_env.config.hardware import GpuSpec, ModelSpec, Precision
from sched_env.cost.hardware import (
    BYTES_PER_NUMBER,
    gpu_spec,
    kv_bytes_per_token,
    model_spec,
    num_parameters,
)
from sched_env.errors import ConfigError

MEASURED_RESERVE_BYTES = 1_237_600_000
"""Activations, CUDA graphs and the rest of one vLLM 0.19 server: Llama 3.1 8B on an RTX 4090 with
max_num_batched_tokens 2048, whose log says 2588 blocks."""


@dataclass(frozen=True)
class KvPool:
    """What the memory of each GPU is used for, in bytes, and the KV blocks that come out.

    Attributes:
        memory_bytes: What the engine may use, ``gpu_memory_utilization`` times the memory.
        weight_bytes: Weights on each GPU.
        reserve_bytes: Activations and the rest.
        block_bytes: One KV block on each GPU.
        num_gpu_blocks: Blocks that fit, as vLLM counts them.
        num_blocks: Blocks that requests can use: vLLM keeps one (``scheduler.num_blocks``).
        num_tokens: Tokens that these hold.
    """

    memory_bytes: float
    weight_bytes: float
    reserve_bytes: float
    block_bytes: float
    num_gpu_blocks: int
    num_blocks: int
    num_tokens: int


def kv_pool(
    gpu: str | GpuSpec,
    model: str | ModelSpec,
    *,
    precision: Precision = "bf16",
    kv_cache_precision: Precision = "bf16",
    tp: int = 1,
    block_size: int = 16,
    gpu_memory_utilization: float = 0.9,
    reserve_bytes: float = MEASURED_RESERVE_BYTES,
) -> KvPool:
    """Return the KV pool of a server.

    Args:
        gpu: A GPU by name, or its spec sheet.
        model: A model by name, or its shape.
        precision: Of the weights.
        kv_cache_precision: Of keys and values.
        tp: GPUs that share the model; each holds a share of weights and heads.
        block_size: Tokens in a block.
        gpu_memory_utilization: Part of the memory that the engine may use.
        reserve_bytes: Activations and the rest, on each GPU.

    Raises:
        UnknownNameError: No GPU or model has that name.
        ConfigError: A figure is out of range, or not one block fits.
    """
    gpu, model = gpu_spec(gpu), model_spec(model)
    if tp < 1 or model.num_attention_heads % tp:
        raise ConfigError(
            f"tp {tp} does not divide {model.num_attention_heads} attention heads; give one that "
            "does"
        )
    if not 0 < gpu_memory_utilization <= 1:
        raise ConfigError(
            f"gpu_memory_utilization {gpu_memory_utilization:g} is not allowed: give a number "
            "above 0, up to 1"
        )
    if block_size < 1 or not 0 <= reserve_bytes < math.inf:
        raise ConfigError("block_size must be 1 or more, and the reserve 0 bytes or more")
    memory = gpu_memory_utilization * gpu.memory_bytes
    weights = num_parameters(model) * BYTES_PER_NUMBER[precision] / tp
    heads_held = max(model.num_kv_heads // tp, 1)  # fewer heads than GPUs: each holds a copy
    share = heads_held / model.num_kv_heads
    block = kv_bytes_per_token(model, kv_cache_precision) * share * block_size
    num_gpu_blocks = int((memory - weights - reserve_bytes) // block)
    if num_gpu_blocks < 2:
        raise ConfigError(
            f"no room for KV blocks: of {memory / 1e9:.1f} GB, weights take {weights / 1e9:.1f}, "
            f"the reserve {reserve_bytes / 1e9:.1f}; give a larger GPU, more GPUs (tp) or fp8"
        )
    num_blocks = num_gpu_blocks - 1
    return KvPool(
        memory, weights, reserve_bytes, block, num_gpu_blocks, num_blocks, num_blocks * block_size
    )
