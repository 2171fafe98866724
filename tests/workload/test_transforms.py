from __future__ import annotations

import numpy as np
import pytest

from sched_env.errors import ConfigError, TraceError
from sched_env.workload import (
    RequestTable,
    limit_model_len,
    scale_rate,
    scale_to_rate,
    split_by_time,
    superpose,
    window,
)
from tests.workload.made_tables import five_requests, sharing


def test_too_long_rows_are_rejected_with_a_count():
    table = limit_model_len(five_requests(), 600)
    assert table.prompt_tokens.tolist() == [512, 100, 1]
    assert table.arrival_time_s.tolist() == [1.0, 1.0, 10.0]
    assert table.source.drops == {"prompt + output > max_model_len 600": 2}
    with pytest.raises(TraceError, match="every row"):
        limit_model_len(five_requests(), 2)


@pytest.mark.parametrize("limit", [2, 50, 513, 600, 1024])
def test_clipping_never_goes_below_one_token_and_keeps_matching_prefix_blocks(limit):
    table = limit_model_len(five_requests(), limit, "clip")
    assert len(table) == 5
    assert np.all(table.prompt_tokens + table.output_tokens <= limit)
    assert np.all(table.prompt_tokens >= 1)
    assert np.all(table.output_tokens >= 1)
    assert sharing(table).num_blocks.tolist() == (-(-table.prompt_tokens // 512)).tolist()
    long = five_requests().prompt_tokens + five_requests().output_tokens > limit
    assert table.source.changes == {f"clipped to max_model_len {limit}": int(long.sum())}


def test_limit_refuses_wrong_choices():
    with pytest.raises(ConfigError, match="max_model_len"):
        limit_model_len(five_requests(), 1)
    with pytest.raises(ConfigError, match="too_long"):
        limit_model_len(five_requests(), 10, "cut")  # pyright: ignore[reportArgumentType]


def test_rate_window_and_split():
    table = five_requests()
    assert scale_rate(table, 4.0).span_s == 2.5
    assert scale_to_rate(table, 8.0).mean_rate_rps == pytest.approx(8.0)
    with pytest.raises(TraceError, match="at once"):
        scale_to_rate(table.take([1, 2]), 1.0)
    assert len(window(table, 0, 2)) == 3
    with pytest.raises(TraceError, match="no request from 4 to 5 s"):
        window(table, 4, 5)
    assert len(split_by_time(table, "train")) == 4


def test_superposing_merges_by_time():
    first = five_requests().with_columns(hash_ids=None)
    second = RequestTable.from_columns(
        arrival_time_s=[0.5, 1.0], prompt_tokens=[7, 8], output_tokens=[1, 1]
    )
    both = superpose([first, second])
    assert both.arrival_time_s.tolist() == [0.0, 0.5, 1.0, 1.0, 1.0, 3.5, 10.0]
    assert both.prompt_tokens.tolist() == [600, 7, 512, 100, 8, 1025, 1]
    assert superpose([first]) is first
    with pytest.raises(TraceError, match="prefix ids"):
        superpose([five_requests(), second])
    with pytest.raises(TraceError, match="no table"):
        superpose([])
