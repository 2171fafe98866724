"""The parts of ``trace`` on real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sched_env.cli.main import main
from sched_env.cli.trace import parse_arrivals, parse_window
from sched_env.errors import ConfigError, UnknownNameError
from sched_env.workload import GammaArrivals, PoissonArrivals, WeibullArrivals, read_trace


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


def test_lengths_alone_get_their_arrivals_from_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths, out = tmp_path / "lengths.csv", tmp_path / "out.csv"
    rows = "".join(f"{10 + index},{5 + index}\n" for index in range(400))
    lengths.write_text("num_prefill_tokens,num_decode_tokens\n" + rows)
    assert main(["trace", "inspect", str(lengths)]) == 2
    assert f"trace convert {lengths} --arrivals poisson:RATE" in capsys.readouterr().err
    convert = ["trace", "convert", str(lengths), "--out", str(out), "--seed", "3"]
    assert main([*convert, "--arrivals", "poisson:8"]) == 0
    table = read_trace(out)
    assert table.prompt_tokens.tolist() == [10 + index for index in range(400)]
    assert table.mean_rate_rps == pytest.approx(8.0, rel=0.15)
    expected = read_trace(lengths, arrival=PoissonArrivals(8.0), seed=3)
    assert table.arrival_time_s.tolist() == expected.arrival_time_s.tolist()


def test_arrivals() -> None:
    assert parse_arrivals(None) is None
    assert parse_arrivals("poisson:8") == PoissonArrivals(8.0)
    assert parse_arrivals("gamma:0.5:2") == GammaArrivals(0.5, 2.0)
    assert parse_arrivals("weibull:3:2") == WeibullArrivals.with_cv(3.0, 2.0)
    for text in ("poisson", "poisson:", "poisson:x", "gamma:1:2:3", ":::"):
        with pytest.raises(ConfigError, match="give KIND:RATE"):
            parse_arrivals(text)
    for text in ("poisson:0", "poisson:nan", "poisson:-1", "gamma:8", "gamma:8:99", "poisson:8:2"):
        with pytest.raises(ConfigError):
            parse_arrivals(text)
    with pytest.raises(UnknownNameError, match="Did you mean 'poisson'"):
        parse_arrivals("poison:8")


def test_a_file_is_only_replaced_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    synth = ["trace", "synth", "azure_code", "--num-requests", "5"]
    assert main(synth) == 0
    first = Path("trace.csv").read_bytes()
    for again in ([*synth, "--seed", "1"], ["trace", "convert", "chatbot"]):
        assert main(again) == 2
        assert "trace.csv exists: name another file with --out" in capsys.readouterr().err
    assert Path("trace.csv").read_bytes() == first
    assert main([*synth, "--seed", "1", "--out", "trace.csv"]) == 0
    assert Path("trace.csv").read_bytes() != first


def test_unit_tick_and_block_size_of_a_trace_can_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [
        {"timestamp": time, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}
        for time in (0, 2, 4)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main(["trace", "inspect", str(path)]) == 2
    assert "give the file's block_tokens" in capsys.readouterr().err
    told = ["--block-tokens", "16", "--time-unit", "s", "--resolution-s", "2"]
    assert main(["trace", "inspect", str(path), *told, "--spread-resolution", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["prefix"]["block_tokens"] == 16
    assert 2.0 < shown["span_s"] < 6.0
    assert "ticks of 2 s" in shown["source"]["notes"][0]
