from __future__ import annotations

import gzip
import json

import pytest

from sched_env.errors import TraceError
from sched_env.workload import PoissonArrivals, read_trace
from tests.workload.made_tables import ids_of, sharing
from tests.workload.readers.trace_texts import MOONCAKE, MOONCAKE_ROWS, QWEN


def _write(tmp_path, rows):
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _changed(index, **changes):
    rows = [dict(row) for row in MOONCAKE_ROWS]
    rows[index].update(changes)
    return [{key: value for key, value in row.items() if value != "absent"} for row in rows]


def test_milliseconds_and_ids(tmp_path):
    path = tmp_path / "m.jsonl.gz"
    path.write_bytes(gzip.compress(MOONCAKE.encode()))
    table = read_trace(path)
    assert table.source.format == "mooncake"
    assert table.arrival_time_s.tolist() == [0.0, 1.5, 1.5]
    assert table.prompt_tokens.tolist() == [1100, 1024, 3]
    assert sharing(table).block_tokens == 512
    assert ids_of(table) == [[0, 1, 2], [0, 1], [9]]


def test_qwen_is_told_apart_by_its_keys(tmp_path):
    (tmp_path / "q.jsonl").write_text(QWEN)
    table = read_trace(tmp_path / "q.jsonl")
    assert table.source.format == "qwen"
    assert table.arrival_time_s.tolist() == [0.0, 0.5]
    assert sharing(table).block_tokens == 16


@pytest.mark.parametrize(
    ("row", "changes", "message"),
    [
        (1, {"hash_ids": [0]}, "line 2, column hash_ids: 1 ids for 1024 prompt tokens"),
        (1, {"hash_ids": [0, 1, 2]}, "line 2, column hash_ids: 3 ids"),
        (1, {"hash_ids": "absent"}, "line 2, column hash_ids"),
        (1, {"hash_ids": [0, 2**63]}, "line 2, column hash_ids"),
        (1, {"hash_ids": [0, None]}, "line 2, column hash_ids"),
        (1, {"hash_ids": {"0": 1}}, "line 2, column hash_ids"),
        (2, {"input_length": -3}, "line 3, column input_length: -3 is not a whole number >= 0"),
        (2, {"input_length": True}, "line 3, column input_length"),
        (2, {"input_length": 2**31}, "line 3, column input_length"),
        (2, {"input_length": 10**30}, "line 3, column input_length"),
        (2, {"input_length": [3]}, "line 3, column input_length"),
        (2, {"output_length": 1.5}, "line 3, column output_length"),
        (2, {"output_length": None}, "line 3, column output_length"),
        (0, {"timestamp": -1}, "line 1, column timestamp"),
        (0, {"timestamp": "absent"}, "line 1, column timestamp"),
        (0, {"timestamp": 10**25}, "line 1, column timestamp"),
        (0, {"timestamp": "noon"}, "line 1, column timestamp"),
    ],
)
def test_a_bad_value_is_named_with_line_and_column(tmp_path, row, changes, message):
    with pytest.raises(TraceError, match=f"^m.jsonl, {message}"):
        read_trace(_write(tmp_path, _changed(row, **changes)))


def test_another_block_size_must_be_named(tmp_path):
    rows = [{"timestamp": 0, "input_length": 30, "output_length": 1, "hash_ids": [1, 2]}]
    with pytest.raises(TraceError, match=r"blocks of 512 tokens need 1; .*block_tokens"):
        read_trace(_write(tmp_path, rows))
    table = read_trace(_write(tmp_path, rows), block_tokens=16)
    assert sharing(table).block_tokens == 16


def test_rows_without_stamps_need_an_arrival_process(tmp_path):
    rows = [{k: v for k, v in row.items() if k != "timestamp"} for row in MOONCAKE_ROWS]
    path = _write(tmp_path, rows)
    with pytest.raises(TraceError, match="without arrival times; draw them"):
        read_trace(path)
    table = read_trace(path, arrival=PoissonArrivals(5.0), seed=3)
    assert len(set(table.arrival_time_s.tolist())) == 3
    assert ids_of(table)[1] == [0, 1]


def test_a_trace_without_ids_has_no_sharing(tmp_path):
    rows = [{k: v for k, v in row.items() if k != "hash_ids"} for row in MOONCAKE_ROWS]
    assert read_trace(_write(tmp_path, rows)).hash_ids is None


def test_dropped_and_kept_failures_keep_the_ids_of_the_others(tmp_path):
    path = _write(tmp_path, _changed(1, input_length=0, hash_ids=[]))
    dropped = read_trace(path)
    assert dropped.source.drops == {"0 prompt tokens": 1}
    assert ids_of(dropped) == [[0, 1, 2], [9]]
    kept = read_trace(path, zero_tokens="keep_failed")
    assert ids_of(kept) == [[0, 1, 2], [10], [9]]


def test_clipping_drops_the_ids_beyond_the_prompt(tmp_path):
    table = read_trace(_write(tmp_path, MOONCAKE_ROWS), max_model_len=600, too_long="clip")
    assert table.prompt_tokens.tolist() == [599, 599, 3]
    assert table.output_tokens.tolist() == [1, 1, 7]
    assert sharing(table).num_blocks.tolist() == [2, 2, 1]
    assert table.source.changes == {"clipped to max_model_len 600": 2}
