"""Threads that share the servers of a batched step.

Each thread takes servers that lie behind one another. They have no memory in common but what nobody
writes, so what comes out is the same to the last bit, however many threads there are.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from sched_env.engine import kernels


class Crew:
    """A number of threads, the caller's own among them.

    Args:
        num_threads: How many, at least 2.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._others = ThreadPoolExecutor(num_threads - 1)

    def step(self, work: tuple[int, int], num_servers: int, actions: NDArray[np.int64]) -> int:
        """Take one decision in each server of a world; return how many flags it set.

        Args:
            work: Addresses of the world and of the outlet that is filled.
            num_servers: Servers of the world.
            actions: int64 (num_servers,).
        """
        edges = [num_servers * i // self.num_threads for i in range(self.num_threads + 1)]
        waited = [
            self._others.submit(kernels.step_servers, *work, first, end, actions)
            for first, end in itertools.pairwise(edges[1:])
        ]
        num_flags = kernels.step_servers(*work, 0, edges[1], actions)
        return num_flags + sum(one.result() for one in waited)

    def __reduce__(self) -> tuple[type[Crew], tuple[int]]:
        """Let a copy or a pickle start threads of its own."""
        return Crew, (self.num_threads,)
