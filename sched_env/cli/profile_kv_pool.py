"""Size the KV pool of a server from its hardware."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sched_env.cli.main import Command
from sched_env.errors import ConfigError

_GB = 1e9


@dataclass(frozen=True)
class ProfileKvPoolArguments:
    """Size the KV pool of a server: memory, less weights and reserve, in blocks.

    The last line is what scheduler.num_blocks has to be.
    """

    gpu: str
    """A GPU by name, such as rtx-4090."""

    model: str
    """A model by name, such as llama-3.1-8b."""

    precision: Literal["bf16", "fp16", "fp8"] = "bf16"
    """Number format of the weights."""

    kv_cache_precision: Literal["bf16", "fp16", "fp8"] = "bf16"
    """Number format of keys and values."""

    tp: int = 1
    """GPUs that share the model."""

    block_size: int = 16
    """Tokens in a block."""

    gpu_memory_utilization: float = 0.9
    """Part of the memory that the engine may use."""

    memory_gb: float | None = None
    """Memory of each GPU in 10^9 bytes, instead of the GPU's usual one."""

    reserve_gb: float | None = None
    """Activations and the rest, in 10^9 bytes; by default 1.2376, measured once."""


def run(arguments: ProfileKvPoolArguments) -> None:
    """Print what the memory is used for, and the number of blocks."""
    from sched_env.cli.tables import print_row
    from sched_env.cost.hardware import gpu_spec
    from sched_env.cost.kv_pool import MEASURED_RESERVE_BYTES, kv_pool

    gpu = gpu_spec(arguments.gpu)
    if arguments.memory_gb is not None:
        if not 0 < arguments.memory_gb * _GB < math.inf:
            raise ConfigError(f"--memory-gb {arguments.memory_gb:g}: give a number above 0")
        gpu = gpu.replace(memory_bytes=arguments.memory_gb * _GB)
    reserve_gb = arguments.reserve_gb
    pool = kv_pool(
        gpu,
        arguments.model,
        precision=arguments.precision,
        kv_cache_precision=arguments.kv_cache_precision,
        tp=arguments.tp,
        block_size=arguments.block_size,
        gpu_memory_utilization=arguments.gpu_memory_utilization,
        reserve_bytes=MEASURED_RESERVE_BYTES if reserve_gb is None else reserve_gb * _GB,
    )
    print_row(
        f"KV pool of {arguments.model} on {arguments.tp} x {arguments.gpu}",
        {
            "memory_used_gb": pool.memory_bytes / _GB,
            "weights_gb": pool.weight_bytes / _GB,
            "reserve_gb": pool.reserve_bytes / _GB,
            "block_bytes": int(pool.block_bytes),
            "num_gpu_blocks": pool.num_gpu_blocks,
            "num_tokens": pool.num_tokens,
        },
    )
    print(f"scheduler.num_blocks={pool.num_blocks}")


COMMAND = Command(ProfileKvPoolArguments, run)
