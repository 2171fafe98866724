from __future__ import annotations

import dataclasses
import gzip

import pytest

from sched_env.errors import ConfigError, TraceError, UnknownNameError
from sched_env.workload import read_trace
from sched_env.workload.readers import trace_file
from sched_env.workload.readers.formats import FORMATS
from sched_env.workload.readers.raw_requests import ReadOptions
from sched_env.workload.readers.read_trace import ReadKeywords
from tests.workload.readers.trace_texts import AZURE_2023, GENERIC_CSV, MOONCAKE

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:00:00.5,10,20\n"


def _fault(tmp_path, content, name="conv.csv", **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("abc", "'abc'"),
        ("-3", "'-3'"),
        ("", "''"),
        ("1.5", "'1.5'"),
        ("nan", "'nan'"),
        ("inf", "'inf'"),
        ("0x10", "'0x10'"),
        ("1_000", "'1_000'"),
        ("2147483648", "'2147483648'"),
        ("9" * 400, "'9999"),
        ("\u0663", "'\u0663'"),
        ("1e3", "'1e3'"),
        ("None", "'None'"),
    ],
)
def test_a_bad_cell_is_named_by_file_line_and_column(tmp_path, cell, shown):
    message = _fault(tmp_path, f"{HEADER}{ROW}{ROW}2023-11-16 18:00:01,{cell},20\n{ROW}")
    assert message.startswith(f"conv.csv, line 4, column ContextTokens: {shown}")
    assert "is not a whole number >= 0" in message
    assert message.endswith("; correct the value or delete the row")


def test_the_line_counts_blank_lines_and_quoted_line_breaks(tmp_path):
    message = _fault(tmp_path, f"{HEADER}{ROW}\n\r\n{ROW}2023-11-16 18:00:01,x,20\n")
    assert message.startswith("conv.csv, line 6, column ContextTokens: 'x'")
    text = 'prompt_tokens,comment,output_tokens,arrival_time_s\n1,"a\nb",1,0\n1,"",-1,0\n'
    message = _fault(tmp_path, text)
    assert message.startswith("conv.csv, line 4, column output_tokens: '-1'")


def test_whole_numbers_written_as_floats_and_with_blanks_are_taken(tmp_path):
    (tmp_path / "a.csv").write_text(f"{HEADER}2023-11-16 18:00:00, 10.0 ,+20\n")
    table = read_trace(tmp_path / "a.csv")
    assert (table.prompt_tokens[0], table.output_tokens[0]) == (10, 20)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "conv.csv is empty"),
        (b" \r\n\n", "conv.csv is empty"),
        (b"\xef\xbb\xbf", "conv.csv is empty"),
        (HEADER, "conv.csv has a header and no data row"),
        (HEADER.strip(), "conv.csv has a header and no data row"),
        (f"{HEADER}{ROW}2023-11-16 18:00:00,1\n", "line 3: 2 fields where 3 are wanted"),
        (f"{HEADER}{ROW}1,2,3,4\n", "line 3: 4 fields where 3 are wanted"),
        (f'{HEADER}{ROW}"2023,1,1\n', "line 3: not CSV"),
        (f"{HEADER}{ROW}{'7' * 200_000},1,1\n", "line 3: not CSV (field larger"),
        (f"{HEADER}{ROW}".encode() + b"\xff,1,1\n", "line 3: not UTF-8"),
        (AZURE_2023.encode("utf-16"), "not UTF-8"),
        ("TIMESTAMP," + HEADER + "1," + ROW, "'TIMESTAMP' occurs twice"),
        (
            HEADER.replace("ContextTokens", "ContextToken") + ROW,
            "Nearest is azure, which also needs ContextTokens",
        ),
        ("a,b\n1,2\n", "no known trace format has the columns a, b"),
        (ROW, "no known trace format has the columns 2023-11-16"),
        ("[{}]", "a JSON array; write one object a line"),
        ("{}\n", "no known trace format has the columns"),
        ("{\n", "line 1: not JSON"),
        (MOONCAKE + "[1, 2]\n", "line 4: a JSON list, not an object"),
        (MOONCAKE + "null\n", "line 4: a JSON NoneType, not an object"),
        (MOONCAKE + '{"timestamp": NaN}\n', "line 4: NaN is not a number of JSON"),
        (MOONCAKE + '{"a": ' + "[" * 200_000 + "\n", "line 4: nested too deeply"),
        (MOONCAKE + '{"a": ' + "9" * 5000 + "}\n", "line 4:"),
        (MOONCAKE + MOONCAKE[:40], "line 4: not JSON"),
        (gzip.compress(AZURE_2023.encode(), mtime=0)[:-9], "damaged gzip archive"),
        (b"\x1f\x8bgarbage", "damaged gzip archive"),
        (gzip.compress(b"", mtime=0), "conv.csv is empty"),
        (b"PAR1garbagePAR1", "damaged parquet"),
        (b"\x00\x01\x02\x03,\x05\n\x00", "no known trace format"),
        (f"{HEADER}2023-11-16 18:00:00,0,0\n", "no row is left (1 with 0 prompt and 0 output"),
    ],
)
def test_a_broken_file_is_refused_with_a_reason(tmp_path, content, words):
    assert words in _fault(tmp_path, content)


def test_a_column_missing_from_a_named_format(tmp_path):
    message = _fault(tmp_path, GENERIC_CSV, format="azure")
    assert "column 'TIMESTAMP' is missing" in message
    assert "Found: output_tokens, arrival_time_s" in message


def test_missing_files_folders_and_names(tmp_path):
    with pytest.raises(TraceError, match=r"no file '.*nothing\.csv'; check the path"):
        read_trace(tmp_path / "nothing.csv")
    with pytest.raises(TraceError, match="is a folder"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="is a folder; give one trace file of it"):
        read_trace(tmp_path, format="azure")
    with pytest.raises(TraceError, match="Did you mean 'azure_conv'"):
        read_trace("azure_cov")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace("a\0b.csv")
    with pytest.raises(UnknownNameError, match="Did you mean 'mooncake'"):
        read_trace(tmp_path / "x.csv", format="mooncak")


def test_a_file_above_the_size_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "MAX_TRACE_BYTES", 1000)
    assert "cut out the window" in _fault(tmp_path, HEADER + ROW * 100)
    assert "cut out the window" in _fault(tmp_path, gzip.compress((HEADER + ROW * 100).encode()))


@pytest.mark.parametrize(
    "options",
    [
        {"zero_tokens": "keep"},
        {"too_long": "cut"},
        {"time_unit": "min"},
        {"max_model_len": 1},
        {"block_tokens": 0},
        {"resolution_s": 0.0},
        {"length_correlation": 2.0},
        {"window_s": (5.0, 5.0)},
        {"window_s": (-1.0, 5.0)},
        {"seed": -1},
    ],
)
def test_impossible_options_are_refused(tmp_path, options):
    (tmp_path / "a.csv").write_text(AZURE_2023)
    with pytest.raises(ConfigError, match=next(iter(options))):
        read_trace(tmp_path / "a.csv", **options)


def test_spreading_a_fine_clock_needs_a_tick(tmp_path):
    (tmp_path / "a.csv").write_text(AZURE_2023)
    with pytest.raises(TraceError, match="give resolution_s"):
        read_trace(tmp_path / "a.csv", spread_resolution=True)
    table = read_trace(tmp_path / "a.csv", spread_resolution=True, resolution_s=1.0)
    assert len(set(table.arrival_time_s.tolist())) == 3


def test_every_option_is_a_keyword():
    assert set(ReadKeywords.__annotations__) == {f.name for f in dataclasses.fields(ReadOptions)}


def test_every_format_has_a_description():
    assert set(FORMATS) == {
        "azure", "burstgpt", "mooncake", "qwen", "vidur", "servegen", "generic"
    }  # fmt: skip
    assert all(trace_format.description for trace_format in FORMATS.values())


def test_an_embedded_name_is_an_hour_of_it():
    table = read_trace("azure_code", seed=3)
    assert 3000 < table.span_s < 3600
    assert table.source.format == "synthetic"
    assert table.source.path is None
    part = read_trace("azure_code", seed=3, window_s=(100, 400), max_model_len=4096)
    assert part.span_s <= 300
    assert part.arrival_time_s[0] == 0
    assert part.source.num_dropped > 0
