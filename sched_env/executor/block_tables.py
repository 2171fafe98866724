"""Which blocks of the KV cache hold which request's tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

_NONE = np.empty(0, np.int64)


class BlockTables:
    """A pool of blocks, and for each request the list of those it holds, in order of its tokens.

    Args:
        num_blocks: Blocks of the pool.
        block_size: Tokens in a block.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._tables: dict[int, NDArray[np.int64]] = {}

    @property
    def num_free(self) -> int:
        """Return the number of blocks that nobody holds."""
        return len(self._free)

    @property
    def rows(self) -> Collection[int]:
        """Return the requests that hold blocks."""
        return self._tables.keys()

    def table(self, row: int) -> NDArray[np.int64]:
        """Return the blocks of a request, int64 (num_blocks held,); not to be written to."""
        return self._tables.get(row, _NONE)

    def grow(self, row: int, num_blocks: int) -> None:
        """Let a request hold ``num_blocks`` blocks, at least as many as before.

        Raises:
            RuntimeError: The pool has not enough of them; the scheduler has counted wrongly.
        """
        table = self.table(row)
        needed = num_blocks - len(table)
        if needed < 0 or needed > self.num_free:
            raise RuntimeError(
                f"request {row} holds {len(table)} blocks and should hold {num_blocks}, "
                f"with {self.num_free} free"
            )
        if needed:
            taken = [self._free.pop() for _ in range(needed)]
            self._tables[row] = np.concatenate((table, taken))

    def release(self, row: int) -> None:
        """Take all blocks of a request back; their contents are lost."""
        self._free.extend(reversed(self._tables.pop(row, _NONE).tolist()))

    def release_all_but(self, rows: Iterable[int]) -> None:
        """Take back the blocks of every request that is not among ``rows``."""
        for row in self._tables.keys() - set(rows):
            self.release(row)
