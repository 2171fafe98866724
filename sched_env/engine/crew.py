"""Threads that share the servers of a batched step.

Each thread takes servers that lie behind one another. They have no memory in common but what nobody
writes, so what comes out is the same to the last bit, however many threads there are.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sched_env.engine import kernels


class Crew:
    """A number of threads, the caller's own among them.

    Args:
        num_threads: How many, at least 2.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._others = ThreadPoolExecutor(num_threads - 1)

    def step(self, address: int, num_servers: int, buffers: tuple[Any, Any, Any, Any]) -> int:
        """Take one decision in each server of a world; return how many flags it set.

        Args:
            address: Where the world lies.
            num_servers: Servers of the world.
            buffers: Actions, observations, masks and results, as ``step_batch`` takes them.
        """
        edges = [num_servers * i // self.num_threads for i in range(self.num_threads + 1)]
        waited = [
            self._others.submit(kernels.step_batch, address, first, end, *buffers)
            for first, end in itertools.pairwise(edges[1:])
        ]
        num_flags = kernels.step_batch(address, 0, edges[1], *buffers)
        return num_flags + sum(one.result() for one in waited)

    def __reduce__(self) -> tuple[type[Crew], tuple[int]]:
        """Let a copy or a pickle start threads of its own."""
        return Crew, (self.num_threads,)
