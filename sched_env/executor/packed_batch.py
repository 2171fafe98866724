"""One iteration's work as flat arrays: the tokens of all sequences behind one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sched_env.executor.block_tables import BlockTables

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Chunk:
    """The part of one request that a batch computes.

    Attributes:
        row: The request.
        start: Tokens whose KV is in the cache.
        num_tokens: Tokens to compute behind them.
        num_blocks: Blocks that the request holds for both.
    """

    row: int
    start: int
    num_tokens: int
    num_blocks: int


@dataclass(frozen=True)
class PackedBatch:
    """The chunks of a batch behind one another.

    Attributes:
        positions: Position of each token in its request, int64 (num_tokens,).
        slots: Where its KV goes in the cache, int64 (num_tokens,).
        query_starts: Where each sequence's tokens begin, and their end, int32 (n + 1,).
        key_lengths: Tokens that each sequence attends to, int32 (n,).
        pages: The blocks of all sequences behind one another, int64 (num_pages,).
        page_starts: Where each sequence's blocks begin, and their end, int32 (n + 1,).
    """

    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    query_starts: NDArray[np.int32]
    key_lengths: NDArray[np.int32]
    pages: NDArray[np.int64]
    page_starts: NDArray[np.int32]

    @property
    def num_sequences(self) -> int:
        """Return the number of sequences."""
        return len(self.key_lengths)

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens to compute."""
        return len(self.positions)

    @property
    def is_decode_only(self) -> bool:
        """Tell whether each sequence computes one token."""
        return self.num_tokens == self.num_sequences

    @property
    def last_tokens(self) -> NDArray[np.int64]:
        """Return where the last token of each sequence is, int64 (n,)."""
        return self.query_starts[1:].astype(np.int64) - 1


NOBODY = PackedBatch(
    positions=np.empty(0, np.int64),
    slots=np.empty(0, np.int64),
    query_starts=np.zeros(1, np.int32),
    key_lengths=np.empty(0, np.int32),
    pages=np.empty(0, np.int64),
    page_starts=np.zeros(1, np.int32),
)
"""A batch without sequences, for padding alone."""


def pack(chunks: Sequence[Chunk], tables: BlockTables) -> PackedBatch:
    """Lay chunks, whose blocks are in ``tables``, behind one another."""
    size = tables.block_size
    counts = np.array([chunk.num_tokens for chunk in chunks])
    starts = np.array([chunk.start for chunk in chunks])
    lengths = starts + counts
    num_pages = -(-lengths // size)
    pages = [tables.table(chunk.row)[:used] for chunk, used in zip(chunks, num_pages, strict=True)]
    query_starts, page_starts = _starts(counts), _starts(num_pages)
    first = np.repeat(starts - query_starts[:-1], counts)
    positions = first + np.arange(int(query_starts[-1]))
    flat = np.concatenate(pages)
    page_of_token = np.repeat(page_starts[:-1], counts) + positions // size
    return PackedBatch(
        positions=positions,
        slots=flat[page_of_token] * size + positions % size,
        query_starts=query_starts,
        key_lengths=lengths.astype(np.int32),
        pages=flat,
        page_starts=page_starts,
    )


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def pad_decodes(
    batch: PackedBatch, num_sequences: int, num_pages: int, spare_block: int, block_size: int
) -> PackedBatch:
    """Return a decode-only batch of fixed sizes that computes the same.

    Args:
        batch: Each sequence computes one token.
        num_sequences: Sequences afterwards; each of those added attends to one token of a page of
            its own, which is ``spare_block``.
        num_pages: Blocks of all sequences afterwards, at least one for each sequence added; those
            behind the last sequence belong to none.
        spare_block: A block that no request holds.
        block_size: Tokens in a block.
    """
    added = num_sequences - batch.num_sequences
    behind = np.arange(1, added + 1, dtype=np.int32)
    return PackedBatch(
        positions=_filled_up(batch.positions, num_sequences, 0),
        slots=_filled_up(batch.slots, num_sequences, spare_block * block_size),
        query_starts=np.arange(num_sequences + 1, dtype=np.int32),
        key_lengths=_filled_up(batch.key_lengths, num_sequences, 1),
        pages=_filled_up(batch.pages, num_pages, spare_block),
        page_starts=np.concatenate((batch.page_starts, batch.page_starts[-1] + behind)),
    )


def _filled_up(array: NDArray[Number], length: int, value: int) -> NDArray[Number]:
    filled = np.full(length, value, array.dtype)
    filled[: len(array)] = array
    return filled
