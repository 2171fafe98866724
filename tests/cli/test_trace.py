"""The parts of ``trace`` on real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sched_env.cli.main import main
from sched_env.cli.trace import parse_window
from sched_env.errors import ConfigError
from sched_env.workload import read_trace


def test_inspect_prints_span_rate_lengths_and_drops(
    shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "inspect", str(shared_dir / "traces/burstgpt/BurstGPT_1.csv")]) == 0
    shown = capsys.readouterr().out
    for words in ("mean rate", "p99", "burstiness", "0 prompt and 0 output tokens", "note: clock"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_inspect_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "inspect", "azure_conv", "--window", "0,60", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["num_requests"] == len(read_trace("azure_conv", window_s=(0.0, 60.0)))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_drawn_and_converted_traces_are_equal(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.csv", tmp_path / f"b{suffix}"
    synth = ["trace", "synth", "azure_code", "--num-requests", "50", "--seed", "3"]
    assert main([*synth, "--out", str(first)]) == 0
    assert main(["trace", "convert", str(first), "--out", str(second)]) == 0
    assert "50 requests" in capsys.readouterr().out
    left, right = read_trace(first), read_trace(second)
    assert left.equals(right)


def test_window() -> None:
    assert parse_window(None) is None
    assert parse_window("0,1e2") == (0.0, 100.0)
    for text in ("", "1", "1,2,3", "a,b", "2,1", "1,1", "-1,1", "0,inf", "nan,1"):
        with pytest.raises(ConfigError, match="give START,END"):
            parse_window(text)


def test_a_trace_is_not_converted_onto_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    text = "arrival_time_s,prompt_tokens,output_tokens,remark\n0,3,4,kept\n"
    path.write_text(text)
    assert main(["trace", "convert", str(path), "--out", str(path)]) == 2
    assert "is the trace itself" in capsys.readouterr().err
    assert path.read_text() == text
