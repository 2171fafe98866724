from __future__ import annotations

import pytest

from sched_env.errors import TraceError
from sched_env.workload import read_trace
from tests.workload.readers.trace_texts import BURSTGPT_1, BURSTGPT_3


@pytest.fixture
def first(tmp_path):
    (tmp_path / "b1.csv").write_text(BURSTGPT_1)
    return tmp_path / "b1.csv"


@pytest.fixture
def third(tmp_path):
    (tmp_path / "b3.csv").write_text(BURSTGPT_3)
    return tmp_path / "b3.csv"


def test_failures_are_dropped_and_counted_by_reason(first):
    table = read_trace(first)
    assert table.source.format == "burstgpt"
    assert table.source.drops == {"0 prompt and 0 output tokens": 1, "0 output tokens": 1}
    assert table.arrival_time_s.tolist() == [0.0, 40.0, 40.0, 113.0]
    assert table.prompt_tokens.tolist() == [472, 1087, 20, 417]
    assert not table.failed.any()


def test_failures_can_be_kept_and_marked(first):
    table = read_trace(first, zero_tokens="keep_failed")
    assert table.failed.tolist() == [False, True, True, False, False, False]
    assert table.prompt_tokens.tolist() == [472, 1, 30, 1087, 20, 417]
    assert table.output_tokens.tolist() == [18, 1, 1, 230, 7, 276]
    assert table.source.drops == {}
    assert table.source.changes == {"kept as failed, zero token counts set to 1": 2}


def test_failures_can_be_refused(first):
    with pytest.raises(TraceError, match="2 rows have 0 prompt or output tokens"):
        read_trace(first, zero_tokens="refuse")


def test_columns_are_chosen_by_name_and_stamps_are_float_text(third):
    table = read_trace(third)
    assert table.arrival_time_s.tolist() == [0.0, 51.0]
    assert table.prompt_tokens.tolist() == [906, 36]
    assert table.output_tokens.tolist() == [446, 29]
    assert table.source.drops == {"0 prompt and 0 output tokens": 1}


def test_all_models_are_kept(first):
    assert len(read_trace(first)) == 4


def test_ties_keep_file_order_and_the_tick_is_noted(first):
    table = read_trace(first)
    assert table.output_tokens.tolist() == [18, 230, 7, 276]
    assert table.source.resolution_s == 1.0
    assert "1 s" in table.source.notes[0]


def test_spreading_stays_in_the_second_keeps_order_and_is_seeded(first):
    table = read_trace(first, spread_resolution=True, seed=1)
    gaps = table.arrival_time_s
    assert table.output_tokens.tolist() == [18, 230, 7, 276]
    assert 0 < gaps[2] - gaps[1] < 1
    assert 39 < gaps[1] < 41
    assert gaps[0] == 0
    assert table.equals(read_trace(first, spread_resolution=True, seed=1))
    assert not table.equals(read_trace(first, spread_resolution=True, seed=2))
    assert "seed 1" in table.source.notes[0]


def test_the_caller_may_name_another_unit(first):
    table = read_trace(first, time_unit="ms")
    assert table.arrival_time_s.tolist() == [0.0, 0.04, 0.04, 0.113]
    assert table.source.resolution_s == 0.001
