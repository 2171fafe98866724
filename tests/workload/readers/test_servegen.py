from __future__ import annotations

import json

import numpy as np
import pytest

from sched_env.errors import TraceError
from sched_env.workload import read_trace
from sched_env.workload.inspect import spearman
from tests.workload.readers.trace_texts import SERVEGEN_DATASET, SERVEGEN_TRACE


def _client(folder, number=3, trace=SERVEGEN_TRACE, dataset=SERVEGEN_DATASET):
    folder.mkdir(exist_ok=True)
    (folder / f"chunk-{number}-dataset.json").write_text(dataset)
    path = folder / f"chunk-{number}-trace.csv"
    path.write_text(trace, newline="")
    return path


def test_rates_shapes_and_lengths_follow_the_windows(tmp_path):
    table = read_trace(_client(tmp_path), window_s=(600, 1800), seed=2)
    assert table.source.format == "servegen"
    first = table.arrival_time_s < 598
    assert np.sum(first) == pytest.approx(1200, abs=140)
    assert np.sum(~first) == pytest.approx(300, abs=160)
    early = table.arrival_time_s < 590
    late = table.arrival_time_s > 602
    assert set(table.prompt_tokens[early].tolist()) == {10, 20}
    assert np.mean(table.prompt_tokens[early] == 20) == pytest.approx(0.75, abs=0.05)
    assert set(table.output_tokens[early].tolist()) == {3, 4}
    assert set(table.prompt_tokens[late].tolist()) == {7}
    assert set(table.output_tokens[late].tolist()) == {8}


def test_every_window_keeps_its_mean_rate_whatever_its_parameters_say(tmp_path):
    # The scale column disagrees with the rate by a factor of 100; the rate holds.
    trace = "".join(f"{600 * i},1.5,2.2,Weibull,0.5,66.0\n" for i in range(60))
    dataset = '{"0": {"input_tokens": "{5: 1}", "output_tokens": "{5: 1}"}}'
    table = read_trace(_client(tmp_path, trace=trace, dataset=dataset), window_s=(0, 36000))
    assert len(table) == pytest.approx(54000, rel=0.04)
    gaps = np.diff(table.arrival_time_s)
    assert gaps.std() / gaps.mean() == pytest.approx(5**0.5, rel=0.1)


def test_prompt_and_output_are_independent_or_correlated_on_demand(tmp_path):
    lengths = "{" + ", ".join(f"{k}: 0.01" for k in range(1, 101)) + "}"
    dataset = json.dumps({"0": {"input_tokens": lengths, "output_tokens": lengths}})
    path = _client(tmp_path, trace="0,8.0,1.0,Gamma,1.0,1.0\n", dataset=dataset)
    independent = read_trace(path, window_s=(0, 600))
    assert abs(spearman(independent.prompt_tokens, independent.output_tokens)) < 0.06
    coupled = read_trace(path, window_s=(0, 600), length_correlation=0.8)
    assert spearman(coupled.prompt_tokens, coupled.output_tokens) == pytest.approx(0.79, abs=0.05)


def test_seed_decides_everything(tmp_path):
    path = _client(tmp_path)
    table = read_trace(path, window_s=(600, 1200), seed=4)
    assert table.equals(read_trace(path, window_s=(600, 1200), seed=4))
    assert not table.equals(read_trace(path, window_s=(600, 1200), seed=5))
    assert "seed 4" in table.source.notes[0]


def test_the_default_window_starts_with_the_first_traffic(tmp_path):
    path = _client(tmp_path, trace=SERVEGEN_TRACE.rsplit("1800", 1)[0])
    table = read_trace(path)
    assert "from 600 to 4200 s" in table.source.notes[0]


def test_a_folder_is_all_its_clients_at_once(tmp_path):
    _client(tmp_path, 3)
    _client(tmp_path, 20, dataset=SERVEGEN_DATASET.replace("10:", "11:").replace("20:", "22:"))
    table = read_trace(tmp_path, window_s=(600, 1200), seed=1)
    assert set(table.prompt_tokens.tolist()) == {10, 11, 20, 22}
    assert len(table) == pytest.approx(2400, abs=250)
    assert np.all(np.diff(table.arrival_time_s) >= 0)
    assert table.source.changes == {}


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("0,-1,1,Gamma,1,1\n", "line 1, column rate_req_per_s"),
        ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", "line 2, column window_start_s"),
        ("0,1,1,Gamma,1,1\n600,1,1,Pareto,1,1\n", "line 2, column family: 'Pareto' is not"),
        ("0,1,1,Gamma,1,1\n600,1,1,Gamma,0,1\n", "line 2, column param1"),
        ("0,1,1,Gamma,1,1\n600,1,1,Gamma,1\n", "line 2: 5 fields where 6"),
        ("0,1,1,Gamma,1,1\n600,nan,1,Gamma,1,1\n", "line 2, column rate_req_per_s"),
        ("0,0,0,,0,0\n", "no window has traffic"),
        ("0,1e6,1,Gamma,1,1\n", "give a shorter window_s"),
    ],
)
def test_a_bad_window_is_named(tmp_path, trace, message):
    with pytest.raises(TraceError, match=message):
        read_trace(_client(tmp_path, trace=trace))


@pytest.mark.parametrize(
    "text",
    [
        "{10: 0.5, 20: __import__('os').system('false')}",
        "{10: 0.5, -3: 0.5}",
        "{10: -0.5}",
        "{10: 0}",
        "{10: 1e999}",
        "{10: 1e400}",
        "{1.5: 1}",
        "{99999999999: 1}",
        "{3000000000: 1}",
        "[10]",
        "{" * 100_000,
        "",
        7,
        None,
    ],
)
def test_the_inner_text_is_parsed_and_never_evaluated(tmp_path, text):
    dataset = json.dumps({"0": {"input_tokens": text, "output_tokens": "{1: 1}"}})
    with pytest.raises(TraceError, match=r"chunk-3-dataset\.json, window 0, column input_tokens"):
        read_trace(_client(tmp_path, dataset=dataset), window_s=(600, 1200))


@pytest.mark.parametrize("dataset", ["", "[]", "{}", "{", '{"x": {}}', '{"0": 3}', "[" * 200_000])
def test_a_broken_dataset_is_named(tmp_path, dataset):
    with pytest.raises(TraceError, match=r"^chunk-3-dataset\.json.*"):
        read_trace(_client(tmp_path, dataset=dataset), window_s=(600, 1200))


def test_traffic_in_a_window_without_lengths_is_refused(tmp_path):
    with pytest.raises(TraceError, match="no lengths for the traffic at 18"):
        read_trace(_client(tmp_path), window_s=(1800, 2400))


def test_missing_partners_are_named(tmp_path):
    path = _client(tmp_path)
    with pytest.raises(TraceError, match=r"give the chunk-N-trace\.csv beside it"):
        read_trace(tmp_path / "chunk-3-dataset.json")
    (tmp_path / "chunk-3-dataset.json").unlink()
    with pytest.raises(TraceError, match=r"its dataset chunk-3-dataset\.json is not beside it"):
        read_trace(path)
    path = path.rename(tmp_path / "windows.csv")
    with pytest.raises(TraceError, match="rename both files"):
        read_trace(path)
    with pytest.raises(TraceError, match="a folder without ServeGen clients"):
        read_trace(tmp_path)


def test_a_window_without_traffic_is_refused(tmp_path):
    with pytest.raises(TraceError, match="no request from 0 to 600 s"):
        read_trace(_client(tmp_path), window_s=(0, 600))
    with pytest.raises(TraceError, match="time_unit"):
        read_trace(_client(tmp_path), time_unit="ms")
