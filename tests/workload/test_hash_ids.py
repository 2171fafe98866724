from __future__ import annotations

import numpy as np
import pytest

from sched_env.errors import TraceError
from sched_env.workload import HashIds

_ROWS = [[5, 6, 7], [], [-1], [9, 2**62]]


def _lists(hash_ids):
    return [hash_ids.row(i).tolist() for i in range(len(hash_ids))]


def test_lists_round_trip():
    hash_ids = HashIds.from_lists(_ROWS, 16)
    assert _lists(hash_ids) == _ROWS
    assert hash_ids.num_blocks.tolist() == [3, 0, 1, 2]
    assert hash_ids.block_tokens == 16
    assert _lists(HashIds.from_lists([], 16)) == []


def test_take_and_shortened():
    hash_ids = HashIds.from_lists(_ROWS, 16)
    assert _lists(hash_ids.take(np.array([3, 1, 0]))) == [[9, 2**62], [], [5, 6, 7]]
    assert _lists(hash_ids.shortened(np.array([2, 5, 0, 1]))) == [[5, 6], [], [], [9]]


@pytest.mark.parametrize(
    ("offsets", "values", "block_tokens"),
    [([1, 2], [0, 0], 16), ([0, 3], [0], 16), ([0, 2, 1], [0], 16), ([0, 1], [0], 0), ([], [], 1)],
)
def test_wrong_offsets_are_refused(offsets, values, block_tokens):
    with pytest.raises(TraceError, match="hash_ids"):
        HashIds(np.array(offsets, np.int64), np.array(values, np.int64), block_tokens)
