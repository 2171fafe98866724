"""GPUs and models by name, and what follows from their figures."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from sched_env.config.hardware import GpuSpec, ModelSpec, Precision
from sched_env.errors import ConfigError, UnknownNameError

BYTES_PER_NUMBER: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp8": 1}


@functools.cache
def _sheets() -> dict[str, Any]:
    text = resources.files("sched_env.cost").joinpath("spec_sheets.json").read_text("utf8")
    return json.loads(text)


def gpu_names() -> tuple[str, ...]:
    """Return the names of the GPUs with a spec sheet."""
    return tuple(sorted(_sheets()["gpus"]))


def model_names() -> tuple[str, ...]:
    """Return the names of the models with a known shape."""
    return tuple(sorted(_sheets()["models"]))


def gpu_spec(gpu: str | GpuSpec) -> GpuSpec:
    """Return a GPU's spec sheet.

    Raises:
        UnknownNameError: No GPU has that name.
    """
    if isinstance(gpu, GpuSpec):
        return gpu
    if gpu not in _sheets()["gpus"]:
        raise UnknownNameError("GPU", gpu, gpu_names())
    return GpuSpec(**_sheets()["gpus"][gpu])


def model_spec(model: str | ModelSpec) -> ModelSpec:
    """Return a model's shape.

    Raises:
        UnknownNameError: No model has that name.
    """
    if isinstance(model, ModelSpec):
        return model
    if model not in _sheets()["models"]:
        raise UnknownNameError("model", model, model_names())
    return ModelSpec(**_sheets()["models"][model])


def flops_per_s(gpu: GpuSpec, precision: Precision) -> float:
    """Return the dense FLOP/s of a GPU in a number format.

    Raises:
        ConfigError: The GPU does not compute in that format.
    """
    if precision != "fp8":
        return gpu.bf16_tflops * 1e12
    if gpu.fp8_tflops is None:
        raise ConfigError("precision 'fp8' is not computed by this GPU; use bf16")
    return gpu.fp8_tflops * 1e12


def layer_parameters(model: ModelSpec) -> int:
    """Return the weights that every new token is multiplied by, in all layers together."""
    heads = 2 * model.num_attention_heads + 2 * model.num_kv_heads  # Q, output; K, V
    attention = model.hidden_size * model.head_size * heads
    mlp = 3 * model.hidden_size * model.intermediate_size
    return model.num_layers * (attention + mlp)


def num_parameters(model: ModelSpec) -> int:
    """Return all weights: layers, norms and embeddings."""
    embedding = model.vocab_size * model.hidden_size
    norms = (2 * model.num_layers + 1) * model.hidden_size
    num_embeddings = 1 if model.tie_word_embeddings else 2
    return layer_parameters(model) + norms + num_embeddings * embedding


def kv_bytes_per_token(model: ModelSpec, precision: Precision = "bf16") -> int:
    """Return the bytes of keys and values that one token keeps, in all layers together."""
    numbers = 2 * model.num_layers * model.num_kv_heads * model.head_size
    return numbers * BYTES_PER_NUMBER[precision]
