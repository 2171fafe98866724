"""The device that a model runs on: is it there, and does the model fit."""

from __future__ import annotations

import torch

from sched_env.errors import ConfigError, UnknownNameError
from sched_env.executor.shapes import ModelShape
from sched_env.hardware import memory_bytes, processor_name

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}

_LEAST_CAPABILITY = (8, 0)


def device_of(name: str) -> torch.device:
    """Return the device of that name, a CUDA device with its number.

    Raises:
        ConfigError: It is no device that the executor runs on, or it is not there.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device {name!r} is unknown: give cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported: give cpu, cuda or cuda:N")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        count = torch.cuda.device_count()
        if device.index >= count:
            raise ConfigError(
                f"device {name!r} is not there (CUDA devices found: {count}): give cpu, or install "
                "a build of torch for CUDA on a machine that has the device"
            )
        if torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
            raise ConfigError(
                f"device {name!r} ({torch.cuda.get_device_name(device)}) has no bfloat16 flash "
                "attention: give an NVIDIA GPU of the Ampere generation or later"
            )
    return device


def dtype_of(name: str | None, device: torch.device) -> torch.dtype:
    """Return the number format of that name; by default the usual one of the device.

    Raises:
        UnknownNameError: No such format.
        ConfigError: The device does not offer it.
    """
    if name is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise UnknownNameError("dtype", name, _DTYPES)
    if device.type == "cuda" and name != "bfloat16":
        raise ConfigError(f"dtype {name!r} has no flash attention on CUDA: give bfloat16")
    return _DTYPES[name]


def device_name(device: torch.device) -> str:
    """Return the product's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor_name()


def check_memory(
    shape: ModelShape, num_kv_tokens: int, device: torch.device, dtype: torch.dtype
) -> None:
    """Refuse a model and a cache that the device cannot hold.

    Raises:
        ConfigError: They need more than is there.
    """
    weights = shape.num_parameters * dtype.itemsize
    cache = shape.kv_elements_per_token * num_kv_tokens * dtype.itemsize
    there = _memory_bytes(device)
    if weights + cache > there:
        raise ConfigError(
            f"{shape.name} takes {weights / 2**30:.1f} GiB and a KV cache of {num_kv_tokens} "
            f"tokens {cache / 2**30:.1f} GiB, more than the {there / 2**30:.1f} GiB that {device} "
            "has: give a smaller model or fewer blocks (num_blocks)"
        )


def max_kv_tokens(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> int:
    """Return how many tokens of KV cache fit beside the weights, a fifth of memory left free."""
    room = 0.8 * _memory_bytes(device) - shape.num_parameters * dtype.itemsize
    return max(int(room / (shape.kv_elements_per_token * dtype.itemsize)), 0)


def _memory_bytes(device: torch.device) -> int:
    """Return the memory of a CPU, or what is free on a CUDA device for this process."""
    if device.type == "cuda":
        held_back = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held_back
    return memory_bytes()
