"""What a GPU's spec sheet and a model's configuration file say."""

from __future__ import annotations

from typing import Literal

from sched_env.config.model import ConfigModel, Count, Flag, Positive

Precision = Literal["bf16", "fp16", "fp8"]
"""A number format of weights or of the KV cache."""


class GpuSpec(ConfigModel):
    """One GPU, by its spec sheet; FLOP/s are dense, without sparsity."""

    memory_bytes: Count | Positive
    """Memory that CUDA reports [bytes]."""

    bandwidth_gb_s: Positive
    """Memory bandwidth [10^9 bytes/s]."""

    bf16_tflops: Positive
    """Dense matrix products in bf16 or fp16 [10^12 FLOP/s]."""

    fp8_tflops: Positive | None = None
    """Dense matrix products in fp8 [10^12 FLOP/s]; null: the GPU has none."""


class ModelSpec(ConfigModel):
    """A Llama-shaped decoder: grouped-query attention and a gated MLP."""

    num_layers: Count
    """Decoder layers."""

    hidden_size: Count
    """Width of the residual stream."""

    intermediate_size: Count
    """Width inside the MLP."""

    num_attention_heads: Count
    """Query heads."""

    num_kv_heads: Count
    """Key and value heads."""

    head_size: Count
    """Width of one head."""

    vocab_size: Count
    """Tokens in the vocabulary."""

    tie_word_embeddings: Flag = False
    """Whether input and output embedding are one matrix."""
