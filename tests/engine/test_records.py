"""How much memory the core's records take."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.engine.queue_records import WAITER
from sched_env.engine.records import CACHE_LINE, REQUEST, SEAT


@pytest.mark.parametrize(("record", "num_lines"), [(REQUEST, 3), (SEAT, 1), (WAITER, 2)])
def test_a_record_is_a_few_whole_lines(record: np.dtype[np.void], num_lines: int) -> None:
    assert record.itemsize == num_lines * CACHE_LINE
