"""A live server: its batches run on a real model, and the time that they take moves its clock.

The engine forms a batch and stops before time passes; an executor, which knows more of the batch
than its sizes, runs it and measures; then the engine goes on as after any other batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import kernels
from sched_env.engine.outlet import NUM_RESULTS, TERMINATED

if TYPE_CHECKING:
    from sched_env.engine.world import World


class BatchExecutor(Protocol):
    """Whatever runs the batches of a live server."""

    def reset(self) -> None:
        """Forget all requests."""
        ...

    def run(self, world: World) -> float:
        """Run the batch that server 0 has formed; return the measured time in seconds."""
        ...


def attach(world: World, executor: BatchExecutor) -> None:
    """Let ``executor`` run the batches of a world, which has one server."""
    executor.reset()
    world.executor = executor
    world.state["live"] = 1


def run_batches(
    world: World,
    observations: NDArray[np.float32],
    masks: NDArray[np.int8],
    results: NDArray[np.float64] | None = None,
) -> int:
    """Let the executor run batches until a decision is due; return how many flags it set.

    Args:
        world: A world with an executor.
        observations: float32 (1, size), to be filled.
        masks: int8 (1, actions), to be filled.
        results: float64 (6, 1), to be filled; ``None``: nobody asks.
    """
    assert world.executor is not None
    state = world.state[0]
    if results is None:
        results = np.zeros((NUM_RESULTS, 1))
    while state["measuring"]:
        step_time_s = world.executor.run(world)
        kernels.end_measured_one(world.address, step_time_s, observations, masks, results)
    return int(np.count_nonzero(results[TERMINATED:]))


def serve(world: World) -> bool:
    """Form the next batch under the scheduler's own rules and run it; tell if there was one."""
    assert world.executor is not None
    if not kernels.form_batch(world.address):
        return False
    step_time_s = world.executor.run(world) if world.state[0]["batch_tokens"] else 0.0
    kernels.deliver_one(world.address, step_time_s)
    return True
