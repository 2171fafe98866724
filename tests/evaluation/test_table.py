from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from sched_env.evaluation.compare import compare
from sched_env.evaluation.statistics import Interval
from sched_env.evaluation.table import (
    TextTable,
    comparison_table,
    format_amount,
    format_interval,
    format_number,
    print_tables,
    result_tables,
    stacked,
    tables_text,
)
from tests.evaluation.made_rows import row, three_policies

LONG = "azure_conv__pointer__seed0__20260101T000000Z"


def wide_table():
    numbers = [f"{1234567 + i}.{i:03d}" for i in range(12)]
    heads = tuple(f"metric{i}" for i in range(12))
    return TextTable("Wide", ("policy", *heads), ((LONG, *numbers), ("fcfs", *numbers)))


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_number_is_cut_at_any_width(width):
    text = tables_text([wide_table()], width)
    for number in wide_table().rows[0][1:]:
        assert text.count(number) == 2
    assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    rows = three_policies() + [
        row(LONG, 0.9, load=load, seed=seed, kind="network")
        for load in (0.8, 1.3)
        for seed in range(4)
    ]
    text = tables_text(result_tables(rows, compare(rows)), width)
    lines = [line for line in text.splitlines() if "  " in line or "--" in line]
    assert max(map(len, lines)) <= width


def test_the_main_table_fits_80_columns_unstacked():
    table = comparison_table(compare(three_policies()))
    assert [part.columns for part in stacked(table, 80)] == [table.columns]


def test_every_part_names_the_policy():
    parts = list(stacked(wide_table(), 60))
    assert len(parts) > 2
    assert all(part.columns[0] == "policy" for part in parts)
    shown = [head for part in parts for head in part.columns[1:]]
    assert shown == list(wide_table().columns[1:])


def test_plain_text_where_the_output_is_no_terminal():
    stream = io.StringIO()
    print_tables([wide_table()], Console(file=stream, width=80))
    assert stream.getvalue().isascii()
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_the_same_numbers():
    stream = io.StringIO()
    print_tables([wide_table()], Console(file=stream, width=80, force_terminal=True))
    for number in wide_table().rows[0][1:]:
        assert stream.getvalue().count(number) == 2


def test_brackets_are_text_not_markup():
    text = tables_text([comparison_table(compare(three_policies()))])
    assert "[95 %]" in text
    assert "0.8515" not in text
    assert "+0.0515 [+0.05" in text
    assert "best heuristic" in text
    assert "8/8" in text


def test_without_a_heuristic_nothing_is_compared_with():
    table = comparison_table(compare([one for one in three_policies() if one["policy"] == "ppo"]))
    assert table.columns == ("policy", "mean [95 %]")
    assert [len(line) for line in table.rows] == [2]
    assert "difference" not in table.title


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (123456.7, "123457"),
        (1234.5, "1234"),
        (12.3456, "12.35"),
        (0.01234, "0.012"),
        (0.0, "0"),
        (1234567, "1234567"),
        (math.nan, "-"),
        (None, "-"),
        (math.inf, "inf"),
    ],
)
def test_amounts(value, text):
    assert format_amount(value) == text


def test_shares_and_intervals():
    assert format_number(0.95) == "0.9500"
    assert format_number(3) == "3"
    assert format_number(None) == "-"
    assert format_interval(Interval(0.5, 0.25, 0.75, 9)) == "0.5000 [0.2500, 0.7500]"
    assert format_interval(Interval(0.5, math.nan, math.nan, 1), signed=True) == (
        "+0.5000 [one value]"
    )
    assert format_interval(Interval(math.nan, math.nan, math.nan, 0)) == "-"
