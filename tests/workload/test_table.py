from __future__ import annotations

import numpy as np
import pytest

from sched_env.errors import TraceError, UnknownNameError
from sched_env.workload import HashIds, RequestTable, TraceSource
from sched_env.workload.table import COLUMN_DTYPES
from tests.workload.made_tables import five_requests, ids_of, sharing

_GOOD = {"arrival_time_s": [0.0, 1.0], "prompt_tokens": [1, 2], "output_tokens": [3, 4]}


def test_columns_have_their_dtypes_and_defaults():
    table = RequestTable.from_columns(**_GOOD)
    for name, dtype in COLUMN_DTYPES.items():
        assert getattr(table, name).dtype == dtype
    assert table.priority.tolist() == [0, 0]
    assert table.service_class.tolist() == [-1, -1]
    assert np.isnan(table.predicted_output_tokens).all()
    assert table.failed.tolist() == [False, False]
    assert table.hash_ids is None


def test_columns_are_read_only_copies():
    times = np.array([0.0, 1.0])
    table = RequestTable.from_columns(**{**_GOOD, "arrival_time_s": times})
    times[1] = 99.0
    assert table.arrival_time_s[1] == 1.0
    for name in COLUMN_DTYPES:
        with pytest.raises(ValueError, match="read-only"):
            getattr(table, name)[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        sharing(five_requests()).values[0] = 5
    with pytest.raises(AttributeError):
        table.arrival_time_s = times  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("column", "values", "word"),
    [
        ("prompt_tokens", [1, 0], "prompt_tokens: every count must be >= 1"),
        ("output_tokens", [-1, 1], "output_tokens"),
        ("output_tokens", [1, 2**31], "int32"),
        ("output_tokens", [1.5, 1], "int32"),
        ("output_tokens", ["a", "b"], "give numbers"),
        ("output_tokens", [1], "1 rows"),
        ("output_tokens", [[1], [2]], "dimensions"),
        ("output_tokens", [float("nan"), 1], "int32"),
        ("arrival_time_s", [1.0, 0.0], "sorted"),
        ("arrival_time_s", [0.0, float("nan")], "finite"),
        ("arrival_time_s", [0.0, float("inf")], "finite"),
        ("arrival_time_s", [-1.0, 0.0], ">= 0"),
        ("priority", [float("nan"), 0], "priority"),
        ("service_class", [-2, 0], "service_class"),
        ("service_class", [0, 200], "int8"),
        ("predicted_output_tokens", [0.0, 1.0], "predicted_output_tokens"),
        ("predicted_output_tokens", [float("inf"), 1.0], "predicted_output_tokens"),
        ("hash_ids", HashIds.from_lists([[1]], 16), "hash_ids has 1 rows"),
    ],
)
def test_a_wrong_column_is_refused_by_name(column, values, word):
    with pytest.raises(TraceError, match=word):
        RequestTable.from_columns(**{**_GOOD, column: values})


def test_tables_are_equal_where_all_columns_and_prefix_ids_are():
    table = five_requests()
    assert five_requests().equals(table)
    assert not five_requests().equals(table.with_columns(priority=np.ones(5)))
    assert not five_requests().equals(table.with_columns(hash_ids=None))


def test_window_is_half_open_rebased_and_keeps_the_ids_of_its_rows():
    part = five_requests().window(1.0, 10.0)
    assert part.arrival_time_s.tolist() == [0.0, 0.0, 2.5]
    assert part.prompt_tokens.tolist() == [512, 100, 1025]
    assert ids_of(part) == [[1], [7], [1, 2, 3]]
    assert len(five_requests().window(4, 5)) == 0
    with pytest.raises(TraceError, match="window"):
        five_requests().window(5, 5)


def test_take_by_mask_and_by_index_keeps_times():
    table = five_requests()
    by_mask = table.take(table.output_tokens > 4)
    assert by_mask.arrival_time_s.tolist() == [1.0, 1.0, 10.0]
    assert by_mask.equals(table.take([1, 2, 4]))
    with pytest.raises(TraceError, match="mask"):
        table.take(np.array([True]))
    with pytest.raises(TraceError, match="sorted"):
        table.take([4, 0])


def test_rate_scale_divides_intervals_from_the_first_arrival():
    table = five_requests().take([1, 2, 3, 4])
    assert table.with_rate_scale(2.0).arrival_time_s.tolist() == [1.0, 1.0, 2.25, 5.5]
    for factor in (0, -1, float("nan"), float("inf")):
        with pytest.raises(TraceError, match="rate scale"):
            table.with_rate_scale(factor)


def test_split_by_time_parts_are_disjoint_complete_and_rebased():
    times = np.arange(101) * 0.5
    ones = np.arange(1, 102)
    table = RequestTable.from_columns(arrival_time_s=times, prompt_tokens=ones, output_tokens=ones)
    train, validation, test = (table.split(n) for n in ("train", "validation", "test"))
    assert [part.prompt_tokens[0] for part in (train, validation, test)] == [1, 61, 71]
    assert [len(part) for part in (train, validation, test)] == [60, 10, 31]
    assert all(part.arrival_time_s[0] == 0 for part in (train, validation, test))
    assert table.split("all").equals(table)


def test_split_says_what_is_wrong():
    with pytest.raises(UnknownNameError, match="Did you mean 'train'"):
        five_requests().split("trian")
    with pytest.raises(TraceError, match="validation part"):
        five_requests().split("validation")


def test_span_and_rate():
    table = five_requests()
    assert table.span_s == 10.0
    assert table.mean_rate_rps == pytest.approx(0.4)
    assert np.isnan(table.take([0]).mean_rate_rps)


def test_source_adds_counts_and_leaves_zeros_out():
    source = TraceSource(drops={"a": 1}).noted("n", drops={"a": 2, "b": 0}, changes={"c": 3})
    assert source.drops == {"a": 3}
    assert source.changes == {"c": 3}
    assert source.notes == ("n",)
    assert source.num_dropped == 3
