from __future__ import annotations

import numpy as np
import pytest

from sched_env.executor.block_tables import BlockTables
from sched_env.executor.packed_batch import NOBODY, Chunk, pack, pad_decodes


def filled_tables() -> BlockTables:
    tables = BlockTables(8, 4)
    tables.grow(0, 1)
    tables.grow(1, 2)
    tables.grow(0, 3)
    return tables


def test_tokens_go_where_the_tables_say() -> None:
    batch = pack([Chunk(0, 3, 7, 3), Chunk(1, 4, 1, 2)], filled_tables())
    assert batch.positions.tolist() == [3, 4, 5, 6, 7, 8, 9, 4]
    assert batch.pages.tolist() == [0, 3, 4, 1, 2]
    assert batch.slots.tolist() == [3, 12, 13, 14, 15, 16, 17, 8]
    assert batch.query_starts.tolist() == [0, 7, 8]
    assert batch.page_starts.tolist() == [0, 3, 5]
    assert batch.key_lengths.tolist() == [10, 5]
    assert batch.last_tokens.tolist() == [6, 7]
    assert not batch.is_decode_only


def test_padding_keeps_decodes_and_adds_sequences_of_the_spare_block() -> None:
    tables = filled_tables()
    batch = pack([Chunk(0, 9, 1, 3), Chunk(1, 4, 1, 2)], tables)
    assert batch.is_decode_only
    padded = pad_decodes(batch, 4, 9, spare_block=8, block_size=4)
    assert padded.pages.tolist() == [0, 3, 4, 1, 2, 8, 8, 8, 8]
    assert padded.page_starts.tolist() == [0, 3, 5, 6, 7]
    assert padded.slots.tolist() == [17, 8, 32, 32]
    assert padded.key_lengths.tolist() == [10, 5, 1, 1]
    assert padded.positions.tolist() == [9, 4, 0, 0]


def test_padding_alone_writes_into_the_spare_block() -> None:
    padded = pad_decodes(NOBODY, 2, 4, spare_block=8, block_size=4)
    assert padded.pages.tolist() == [8, 8, 8, 8]
    assert padded.page_starts.tolist() == [0, 1, 2]
    assert padded.slots.tolist() == [32, 32]
    assert padded.key_lengths.tolist() == [1, 1]


def test_blocks_return_to_the_pool() -> None:
    tables = filled_tables()
    assert tables.num_free == 3
    tables.release_all_but([1])
    assert tables.num_free == 6
    assert list(tables.rows) == [1]
    assert np.array_equal(tables.table(1), [1, 2])


@pytest.mark.parametrize("num_blocks", [2, 7])
def test_impossible_counts_are_refused(num_blocks: int) -> None:
    tables = filled_tables()
    with pytest.raises(RuntimeError, match="request 0 holds 3 blocks"):
        tables.grow(0, num_blocks)
    assert tables.num_free == 3
