"""Prefix block ids of prompts, ragged and compact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError
from sched_env.workload.columns import frozen_column


@dataclass(frozen=True, eq=False)
class HashIds:
    """Prefix block ids of the prompts: equal leading ids mean an equal prefix.

    The ids are opaque: only equality counts, and only inside one table.

    Attributes:
        offsets: int64 (n + 1,), row i owns ``values[offsets[i]:offsets[i + 1]]``.
        values: int64 (offsets[-1],), block ids in prompt order.
        block_tokens: tokens per block; the last block of a prompt may be partial.
    """

    offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    block_tokens: int

    def __post_init__(self) -> None:
        """Check the offsets and freeze both arrays.

        Raises:
            TraceError: offsets do not start at 0, decrease, or do not end at ``len(values)``.
        """
        offsets = frozen_column("hash_ids.offsets", self.offsets, np.int64)
        values = frozen_column("hash_ids.values", self.values, np.int64)
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(values):
            raise TraceError("hash_ids: offsets must run from 0 to the number of values")
        if np.any(np.diff(offsets) < 0):
            raise TraceError("hash_ids: offsets must not decrease")
        if self.block_tokens < 1:
            raise TraceError(f"hash_ids: block_tokens {self.block_tokens} must be >= 1")
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "values", values)

    @classmethod
    def from_lists(cls, rows: list[list[int]], block_tokens: int) -> Self:
        """Build from one list of ids per request."""
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        values = np.fromiter((i for row in rows for i in row), np.int64, int(offsets[-1]))
        return cls(offsets, values, block_tokens)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.offsets) - 1

    def row(self, index: int) -> npt.NDArray[np.int64]:
        """Return the ids of one request, int64 (num_blocks,)."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def num_blocks(self) -> npt.NDArray[np.int64]:
        """Return the number of ids of each request, int64 (n,)."""
        return np.diff(self.offsets)

    def take(self, rows: npt.NDArray[np.int64]) -> HashIds:
        """Return the ids of these rows, in this order."""
        return self._gathered(rows, self.num_blocks[rows])

    def shortened(self, num_blocks: npt.NDArray[np.int64]) -> HashIds:
        """Return a copy in which request i keeps at most its first ``num_blocks[i]`` ids."""
        kept = np.minimum(self.num_blocks, num_blocks)
        return self._gathered(np.arange(len(self), dtype=np.int64), kept)

    def _gathered(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> HashIds:
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        shift = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        values = self.values[np.arange(offsets[-1], dtype=np.int64) + shift]
        return HashIds(offsets, values, self.block_tokens)
