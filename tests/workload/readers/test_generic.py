from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from sched_env.errors import TraceError
from sched_env.workload import PoissonArrivals, read_trace
from tests.workload.made_tables import ids_of, sharing
from tests.workload.readers.trace_texts import GENERIC_CSV


def test_csv_columns_by_name_with_empty_cells_and_quotes(tmp_path):
    (tmp_path / "g.csv").write_text(GENERIC_CSV)
    table = read_trace(tmp_path / "g.csv")
    assert table.source.format == "generic"
    assert table.arrival_time_s.tolist() == [0.0, 0.25, 0.5]
    assert table.prompt_tokens.tolist() == [10, 20, 30]
    assert table.output_tokens.tolist() == [5, 6, 7]
    assert table.priority.tolist() == [2.5, 0.0, -1.0]
    assert table.service_class.tolist() == [2, -1, 0]
    assert table.predicted_output_tokens[[0, 2]].tolist() == [6.5, 7.0]
    assert math.isnan(table.predicted_output_tokens[1])


def test_class_names_follow_the_caller(tmp_path):
    (tmp_path / "g.csv").write_text(
        "arrival_time_s,prompt_tokens,output_tokens,service_class\n0,1,1,gold\n1,1,1,lead\n"
    )
    names = ("lead", "gold")
    table = read_trace(tmp_path / "g.csv", service_class_names=names)
    assert table.service_class.tolist() == [1, 0]
    with pytest.raises(TraceError, match="line 2, column service_class: 'gold' is not"):
        read_trace(tmp_path / "g.csv")


def test_json_lines(tmp_path):
    rows = [
        {"arrival_time_s": 3, "prompt_tokens": 9, "output_tokens": 2, "hash_ids": [5, 6, 5]},
        {"arrival_time_s": 1.5, "prompt_tokens": 4, "output_tokens": 2, "hash_ids": [5]},
    ]
    (tmp_path / "g.jsonl").write_text("\n".join(json.dumps({**r, "block_tokens": 4}) for r in rows))
    table = read_trace(tmp_path / "g.jsonl")
    assert table.arrival_time_s.tolist() == [0.0, 1.5]
    assert ids_of(table) == [[5], [5, 6, 5]]
    assert sharing(table).block_tokens == 4
    assert table.source.changes == {"moved by sorting by arrival": 1}


def test_parquet(tmp_path):
    columns = {"prompt_tokens": [1, 2], "output_tokens": [3.0, 4.0], "arrival_time_s": [0.5, 0.75]}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "g.parquet")
    table = read_trace(tmp_path / "g.parquet")
    assert table.output_tokens.tolist() == [3, 4]
    assert table.arrival_time_s.tolist() == [0.0, 0.25]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("prompt_tokens", [1, None], "row 2, column prompt_tokens: no value"),
        ("prompt_tokens", [1, -1], "row 2, column prompt_tokens"),
        ("prompt_tokens", [b"a", b"b"], "row 1, column prompt_tokens"),
        ("output_tokens", [1.5, 2.0], "row 1, column output_tokens"),
        ("arrival_time_s", [0.0, float("nan")], "row 2, column arrival_time_s"),
        ("arrival_time_s", [float("inf"), 0.0], "row 1, column arrival_time_s"),
        ("predicted_output_tokens", [0.0, 1.0], "row 1, column predicted_output_tokens"),
        ("service_class", [0, 127], "row 2, column service_class"),
        ("failed", [0, 2], "row 2, column failed"),
        ("block_tokens", [16, 8], "row 2, column block_tokens"),
    ],
)
def test_a_bad_parquet_value_is_named_with_row_and_column(tmp_path, column, values, message):
    columns = {
        "prompt_tokens": [1, 2],
        "output_tokens": [3, 4],
        "arrival_time_s": [0.5, 0.75],
        "hash_ids": [[1], [2]],
        column: values,
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "g.parquet")
    with pytest.raises(TraceError, match=message):
        read_trace(tmp_path / "g.parquet")


def test_a_trace_without_arrivals_needs_a_process(tmp_path):
    (tmp_path / "g.csv").write_text("prompt_tokens,output_tokens\n1,2\n3,4\n")
    with pytest.raises(TraceError, match="without arrival times; draw them"):
        read_trace(tmp_path / "g.csv")
    assert len(read_trace(tmp_path / "g.csv", arrival=PoissonArrivals(1.0))) == 2


def test_unsorted_rows_are_sorted_stably_and_counted(tmp_path):
    rows = ["4,1", "2,2", "2,3", "9,4", "0,5", "9,6"]
    text = "".join(f"{row},1\n" for row in rows)
    (tmp_path / "g.csv").write_text(f"arrival_time_s,prompt_tokens,output_tokens\n{text}")
    table = read_trace(tmp_path / "g.csv")
    assert table.prompt_tokens.tolist() == [5, 2, 3, 1, 4, 6]
    assert table.source.changes == {"moved by sorting by arrival": 3}


def test_time_units(tmp_path):
    text = "arrival_time_s,prompt_tokens,output_tokens\n1000000000,1,1\n4000000001,1,1\n"
    (tmp_path / "g.csv").write_text(text)
    spans = {unit: read_trace(tmp_path / "g.csv", time_unit=unit).span_s for unit in ("s", "ns")}
    assert spans == {"s": 3000000001.0, "ns": pytest.approx(3.000000001, abs=1e-15)}


def test_large_whole_stamps_keep_every_nanosecond(tmp_path):
    start = 1_700_000_000_123_456_789
    text = f"arrival_time_s,prompt_tokens,output_tokens\n{start},1,1\n{start + 7},1,1\n"
    (tmp_path / "g.csv").write_text(text)
    assert read_trace(tmp_path / "g.csv", time_unit="ns").span_s == 7e-9


def test_window_is_rebased_and_an_empty_one_is_refused(tmp_path):
    text = "arrival_time_s,prompt_tokens,output_tokens\n5,1,1\n7,2,1\n9,3,1\n"
    (tmp_path / "g.csv").write_text(text)
    table = read_trace(tmp_path / "g.csv", window_s=(2.0, 10.0))
    assert table.prompt_tokens.tolist() == [2, 3]
    assert table.arrival_time_s.tolist() == [0.0, 2.0]
    with pytest.raises(TraceError, match="no request from 5 to 6 s"):
        read_trace(tmp_path / "g.csv", window_s=(5, 6))


def test_a_hundred_thousand_rows(tmp_path):
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(0.1, 100_000))
    tokens = rng.integers(1, 5000, (100_000, 2))
    lines = [f"{t!r},{p},{o}" for t, (p, o) in zip(times.tolist(), tokens.tolist(), strict=True)]
    header = "arrival_time_s,prompt_tokens,output_tokens"
    (tmp_path / "g.csv").write_text("\n".join([header, *lines]))
    table = read_trace(tmp_path / "g.csv")
    assert (table.arrival_time_s == times - times[0]).all()
    assert (table.prompt_tokens == tokens[:, 0]).all()
    lines[77_777] = "1.0,5,x"
    (tmp_path / "g.csv").write_text("\n".join([header, *lines]))
    with pytest.raises(TraceError, match="line 77779, column output_tokens: 'x' is not"):
        read_trace(tmp_path / "g.csv")


def test_whole_times_may_be_written_with_an_exponent(tmp_path):
    (tmp_path / "g.csv").write_text("arrival_time_s,prompt_tokens,output_tokens\n0,1,2\n1e9,3,4\n")
    assert read_trace(tmp_path / "g.csv").arrival_time_s.tolist() == [0.0, 1e9]


def test_a_wrong_prediction_is_shown_as_it_is_written(tmp_path):
    header = "arrival_time_s,prompt_tokens,output_tokens,predicted_output_tokens"
    (tmp_path / "g.csv").write_text(f"{header}\n0,1,2,-4\n")
    with pytest.raises(TraceError, match="predicted_output_tokens: '-4' is not a number > 0"):
        read_trace(tmp_path / "g.csv")


def test_no_name_is_no_folder():
    with pytest.raises(TraceError, match="no trace is named"):
        read_trace("")
