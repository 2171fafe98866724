"""Measure a grid of steps on a device."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sched_env.executor.packed_batch import Chunk
from sched_env.executor.step_grid import StepPoint
from sched_env.executor.torch_executor import TorchExecutor


@dataclass(frozen=True)
class MeasuredStep:
    """One point of the grid.

    Attributes:
        point: Its sizes.
        step_time_s: Median of the repeats.
        spread: Distance of the quartiles over the median.
        floor_s: Least time that the memory's bandwidth allows.
    """

    point: StepPoint
    step_time_s: float
    spread: float
    floor_s: float

    @property
    def is_possible(self) -> bool:
        """Tell whether the time is above the physical floor."""
        return self.step_time_s >= self.floor_s


def measure_steps(
    executor: TorchExecutor,
    points: Iterable[StepPoint],
    bandwidth: float,
    *,
    repeats: int = 7,
    warm_ups: int = 2,
) -> Iterator[MeasuredStep]:
    """Yield the measured time of each point.

    Args:
        executor: The model; what it holds is forgotten.
        points: Steps to measure.
        bandwidth: Of the device's memory, in bytes/s.
        repeats: Measured runs of each point.
        warm_ups: Runs before them.
    """
    executor.cache.normal_()
    rng = np.random.default_rng(0)
    for point in points:
        chunks = place_step(executor, point)
        tokens = rng.integers(executor.shape.vocab_size, size=point.new_tokens)
        for _ in range(warm_ups):
            executor.compute(chunks, tokens)
        times = [executor.compute(chunks, tokens)[1] for _ in range(repeats)]
        median = statistics.median(times)
        low, high = np.percentile(times, [25, 75])
        floor_s = point.floor_s(executor.shape, executor.dtype.itemsize, bandwidth)
        yield MeasuredStep(point, median, float(high - low) / median, floor_s)
    executor.reset()


def place_step(executor: TorchExecutor, point: StepPoint) -> list[Chunk]:
    """Let sequences of a step's sizes hold blocks, dealt in turn as in a busy server."""
    size = executor.tables.block_size
    chunks = [
        Chunk(row, point.context_tokens - 1, 1, -(-point.context_tokens // size))
        for row in range(point.num_decodes)
    ]
    if point.prefill_tokens:
        end = point.prefill_past + point.prefill_tokens
        chunks.append(
            Chunk(point.num_decodes, point.prefill_past, point.prefill_tokens, -(-end // size))
        )
    executor.reset()
    for count in range(1, max(chunk.num_blocks for chunk in chunks) + 1):
        for chunk in chunks:
            if count <= chunk.num_blocks:
                executor.tables.grow(chunk.row, count)
    return chunks
