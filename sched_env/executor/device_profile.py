"""Profile a model on a device: choose the grid, measure it, drop what cannot be true."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from sched_env.errors import ConfigError
from sched_env.executor.device import device_name, device_of, dtype_of, max_kv_tokens
from sched_env.executor.profile import MeasuredStep, measure_steps
from sched_env.executor.shapes import shape_of
from sched_env.executor.step_clock import read_bandwidth
from sched_env.executor.step_grid import GridLimits, StepPoint, step_grid
from sched_env.executor.step_table import StepTableHead
from sched_env.executor.torch_executor import TorchExecutor

_REACH = {
    "cpu": {"max_num_seqs": 32, "max_num_batched_tokens": 512, "max_context_tokens": 1024},
    "cuda": {"max_num_seqs": 256, "max_num_batched_tokens": 8192, "max_context_tokens": 8192},
}


@dataclass(frozen=True)
class ProfileRequest:
    """What to profile; ``None`` is the usual value of the device.

    Attributes:
        model: Name of a shape.
        device: ``cpu`` or a CUDA device.
        dtype: Number format.
        block_size: Tokens in a KV block.
        max_num_seqs: Most decoding sequences.
        max_num_batched_tokens: Most tokens of a step.
        max_context_tokens: Longest context.
        repeats: Measured runs of each step, of which the median counts.
        bandwidth: Of the device's memory, in bytes/s; ``None``: measured.
        seed: Draws the weights.
        cpu_time: On a CPU, measure the time that this process computed.
        max_seconds: Measure no longer; the steps come in random order, so that those that are
            left out are of all kinds. ``None``: measure all.

    Raises:
        UnknownNameError: No such model or number format.
        ConfigError: The device is not there, or a size is not possible.
    """

    model: str = "toy"
    device: str = "cpu"
    dtype: str | None = None
    block_size: int = 16
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_context_tokens: int | None = None
    repeats: int = 7
    bandwidth: float | None = None
    seed: int = 0
    cpu_time: bool = False
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        shape_of(self.model)
        dtype_of(self.dtype, device_of(self.device))
        for name in ("block_size", "repeats", "bandwidth", "max_seconds", *_REACH["cpu"]):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} {value:g} is not allowed: give a number above 0")


@dataclass(frozen=True)
class DeviceProfile:
    """A measured grid.

    Attributes:
        head: What all steps have in common.
        steps: Those above the physical floor.
        rejected: Those below it.
        provenance: How they came about, as plain values.
    """

    head: StepTableHead
    steps: tuple[MeasuredStep, ...]
    rejected: tuple[MeasuredStep, ...]
    provenance: dict[str, Any]


def profile_device(
    request: ProfileRequest,
    source: str,
    follow: Callable[[int, int], None] = lambda done, total: None,
) -> DeviceProfile:
    """Measure a grid of steps.

    Args:
        request: Model, device and reach.
        source: Who measures, for the table.
        follow: Called with the steps done and the steps in all.

    Raises:
        ConfigError: The device's memory is too small, or its bandwidth, as it was given, makes most
            of the steps impossible.
    """
    shape, device = shape_of(request.model), device_of(request.device)
    dtype = dtype_of(request.dtype, device)
    limits = _limits(request, max_kv_tokens(shape, device, dtype))
    num_blocks = -(-limits.num_kv_tokens // request.block_size) + limits.max_num_seqs + 1
    weight_bytes = shape.step_parameters * dtype.itemsize
    bandwidth = request.bandwidth or read_bandwidth(device, weight_bytes)
    executor = TorchExecutor(
        shape,
        num_blocks,
        request.block_size,
        device=request.device,
        dtype=request.dtype,
        max_num_seqs=limits.max_num_seqs,
        seed=request.seed,
        cpu_time=request.cpu_time,
    )
    points = step_grid(limits)
    steps = _measure(executor, points, bandwidth, request, follow)
    kept = tuple(step for step in steps if step.is_possible)
    rejected = tuple(step for step in steps if not step.is_possible)
    if len(rejected) > len(kept):
        raise ConfigError(
            f"{len(rejected)} of {len(steps)} steps are faster than memory of "
            f"{bandwidth / 1e9:.1f} GB/s allows: give the device's real bandwidth, or leave it out"
        )
    name = str(dtype).removeprefix("torch.")
    head = StepTableHead(device_name(device), shape.name, name, "sched-env executor", source)
    provenance = {
        "device": str(device),
        "device_name": head.gpu,
        "model": asdict(shape),
        "num_parameters": shape.num_parameters,
        "dtype": name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "num_threads": torch.get_num_threads(),
        "request": asdict(request),
        "limits": asdict(limits),
        "bandwidth_bytes_per_s": bandwidth,
        "bandwidth_was": "given" if request.bandwidth else "measured",
        "num_steps": len(kept),
        "num_points": len(points),
        "median_spread": statistics.median(step.spread for step in kept),
        "rejected": [
            {**asdict(step.point), "step_time_s": step.step_time_s, "floor_s": step.floor_s}
            for step in rejected
        ],
    }
    return DeviceProfile(head, kept, rejected, provenance)


def _measure(
    executor: TorchExecutor,
    points: Sequence[StepPoint],
    bandwidth: float,
    request: ProfileRequest,
    follow: Callable[[int, int], None],
) -> list[MeasuredStep]:
    """Measure points in random order, as long as there is time, and return them in their own."""
    order = np.random.default_rng(request.seed).permutation(len(points)).tolist()
    end_s = time.monotonic() + (request.max_seconds or math.inf)
    found: dict[int, MeasuredStep] = {}
    shuffled = (points[i] for i in order)
    steps = measure_steps(executor, shuffled, bandwidth, repeats=request.repeats)
    for i, step in zip(order, steps, strict=False):
        found[i] = step
        follow(len(found), len(points))
        if time.monotonic() >= end_s:
            break
    return [found[i] for i in sorted(found)]


def _limits(request: ProfileRequest, most_kv_tokens: int) -> GridLimits:
    """Return how far the grid reaches, with what was not given as is usual on the device."""
    reach = _REACH[request.device.partition(":")[0]]
    given = {name: getattr(request, name) or usual for name, usual in reach.items()}
    wanted = given["max_num_seqs"] * given["max_context_tokens"]
    wanted += given["max_context_tokens"]
    if most_kv_tokens < given["max_context_tokens"]:
        raise ConfigError(
            f"the device holds {request.model} and {most_kv_tokens} tokens of KV cache, fewer than "
            f"max_context_tokens {given['max_context_tokens']}: give a smaller one"
        )
    return GridLimits(**given, num_kv_tokens=min(wanted, most_kv_tokens))
