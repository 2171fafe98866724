from __future__ import annotations

import numpy as np
import pytest

from sched_env.errors import TraceError
from sched_env.workload import RequestTable, read_trace, synthesize, write_trace
from tests.workload.made_tables import five_requests, sharing

_SUFFIXES = (".csv", ".jsonl", ".parquet")


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_every_column_comes_back_equal(tmp_path, suffix):
    table = five_requests().with_columns(failed=np.array([False, True, False, False, True]))
    path = write_trace(table, tmp_path / f"five{suffix}")
    assert read_trace(path).equals(table)
    assert [file.name for file in tmp_path.iterdir()] == [f"five{suffix}"]


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_times_come_back_bit_by_bit(tmp_path, suffix):
    table = synthesize("azure_conv", num_requests=500, seed=3)
    again = read_trace(write_trace(table, tmp_path / f"t{suffix}"))
    assert again.arrival_time_s.tobytes() == table.arrival_time_s.tobytes()
    assert again.equals(table)


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_prefix_ids_are_never_lost(tmp_path, suffix):
    again = read_trace(write_trace(five_requests(), tmp_path / f"t{suffix}"))
    assert sharing(again).block_tokens == 512
    assert sharing(again).values.tolist() == sharing(five_requests()).values.tolist()


def test_a_plain_table_writes_three_columns(tmp_path):
    table = RequestTable.from_columns(
        arrival_time_s=[0, 0.25], prompt_tokens=[3, 4], output_tokens=[1, 2]
    )
    text = write_trace(table, tmp_path / "t.csv").read_text()
    assert text == "arrival_time_s,prompt_tokens,output_tokens\n0.0,3,1\n0.25,4,2\n"


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"\.csv, \.jsonl, \.parquet"):
        write_trace(five_requests(), tmp_path / "t.xlsx")
    with pytest.raises(TraceError, match="no request"):
        write_trace(five_requests().take([]), tmp_path / "t.csv")
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(five_requests(), tmp_path / "missing" / "t.csv")
    with pytest.raises(TraceError, match=r"cannot be written: .*choose another path"):
        write_trace(five_requests(), tmp_path / ("n" * 300 + ".csv"))
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(TraceError, match="is a folder"):
        write_trace(five_requests(), tmp_path / "dir.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["dir.csv"]


def test_a_name_as_long_as_a_file_may_have_is_written(tmp_path):
    path = write_trace(five_requests(), tmp_path / ("n" * 251 + ".csv"))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
