from __future__ import annotations

import gzip

import pytest

from sched_env.errors import TraceError
from sched_env.workload import read_trace
from tests.workload.readers.trace_texts import AZURE_2023, AZURE_2024, AZURE_2025

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_seven_digits_crlf_and_no_final_newline(tmp_path):
    (tmp_path / "a.csv").write_text(AZURE_2023, newline="")
    table = read_trace(tmp_path / "a.csv")
    assert table.source.format == "azure"
    # 1 microsecond survives: stamps are subtracted as integers.
    assert table.arrival_time_s.tolist() == [0.0, 1e-6, 2.5]
    assert table.prompt_tokens.tolist() == [100, 200, 300]
    assert table.output_tokens.tolist() == [10, 20, 30]
    assert table.hash_ids is None
    assert table.source.drops == {}


def test_stamps_with_and_without_fraction_and_zone_may_mix(tmp_path):
    (tmp_path / "a.csv").write_text(AZURE_2024)
    table = read_trace(tmp_path / "a.csv")
    assert table.arrival_time_s.tolist() == [0.0, 0.998837, 2.498837, 2.998837]


def test_gzip_is_recognised_by_content(tmp_path):
    (tmp_path / "a.data").write_bytes(gzip.compress(AZURE_2023.encode()))
    assert len(read_trace(tmp_path / "a.data")) == 3


def test_the_column_of_images_is_noted_and_not_counted(tmp_path):
    (tmp_path / "a.csv").write_text(AZURE_2025)
    table = read_trace(tmp_path / "a.csv")
    assert table.arrival_time_s.tolist() == [0.0, 1.0]
    assert "NumImages" in table.source.notes[0]


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "abc",
        "2023-13-16 18:00:00",
        "2023-02-30 18:00:00.5",
        "2023-11-16 25:00:00",
        "2023-11-16 18:00:00.1234567890",
        "2023-11-16 18:00:00+99:00",
        "2023-11-16",
        "1023-11-16 18:00:00",
        "9999-11-16 18:00:00",
        "1969-12-31 23:59:59",
        "\u0662023-11-16 18:00:00",
        "17",
    ],
)
def test_a_bad_stamp_is_named_with_line_and_column(tmp_path, stamp):
    (tmp_path / "a.csv").write_text(f"{HEADER}2023-11-16 18:00:00,1,1\n{stamp},1,1\n")
    with pytest.raises(TraceError, match=r"^a\.csv, line 3, column TIMESTAMP: .* date and time"):
        read_trace(tmp_path / "a.csv")


def test_a_unit_for_dates_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(AZURE_2023)
    with pytest.raises(TraceError, match="time_unit"):
        read_trace(tmp_path / "a.csv", time_unit="s")
