"""Replays of real runs."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest

from sched_env.config.cost import AffineCost, TwoRegimeCost
from sched_env.config.scheduler import SchedulerConfig
from sched_env.errors import ConfigError
from sched_env.evaluation.plots import can_plot
from sched_env.evaluation.replay import (
    LATENCIES,
    Replay,
    replay_run,
    replay_table,
    write_replay,
)
from sched_env.evaluation.replay_plot import plot_replay
from sched_env.workload.served_run import ServedRun, read_served_run
from sched_env.workload.table import RequestTable

COST = AffineCost(base_s=0.01, per_decode_s=0.001, per_prefill_token_s=0.0001)
LIMITS = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=256, num_blocks=200)


def _made_run(slower: float = 1.0) -> ServedRun:
    """A run by the simulator itself, all latencies ``slower`` times as long."""
    rng = np.random.default_rng(0)
    table = RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 2, 40)) - 0.0,
        prompt_tokens=rng.integers(1, 300, 40),
        output_tokens=rng.integers(1, 30, 40),
    ).rebased()
    blank = ServedRun(table, tuple("r" * 40), *[table.arrival_time_s] * 3)
    rows = replay_run(blank, LIMITS, COST).result.requests
    arrival_s = table.arrival_time_s
    times = [
        arrival_s + slower * (rows[name] - arrival_s)
        for name in ("first_scheduled_s", "first_token_s", "finish_s")
    ]
    return ServedRun(table, tuple(f"r{i}" for i in range(40)), *times)


@pytest.fixture(scope="module")
def same() -> Replay:
    return replay_run(_made_run(), LIMITS, COST)


def test_a_run_of_the_simulator_is_replayed_without_error(same: Replay) -> None:
    for name, metric in same.metrics.items():
        assert metric["real"] == pytest.approx(metric["simulated"], rel=1e-9), name
        assert metric["error_pct"] == pytest.approx(0.0, abs=1e-6) or metric["real"] == 0.0


def test_errors_are_relative_to_the_real_run() -> None:
    metrics = replay_run(_made_run(slower=1.25), LIMITS, COST).metrics
    for name in ("mean_ttft_ms", "p90_e2el_ms", "mean_tpot_ms", "p99_queue_wait_ms"):
        assert metrics[name]["error_pct"] == pytest.approx(-20.0)


def test_every_latency_comes_with_its_percentiles(same: Replay) -> None:
    wanted = {f"{s}_{name}_ms" for name in LATENCIES for s in ("mean", "p50", "p90", "p99")}
    assert set(same.metrics) == wanted | {"makespan_s"}
    assert same.metrics["makespan_s"]["real"] == same.run.makespan_s
    one_token = same.run.requests.output_tokens == 1
    assert np.array_equal(np.isnan(same.real["tpot"]), one_token)


def test_files_hold_the_comparison(same: Replay, tmp_path) -> None:
    paths = write_replay(same, tmp_path / "out")
    assert all(path.is_file() for path in paths)
    read = json.loads((tmp_path / "out" / "replay.json").read_text())
    assert set(read["mean_e2el_ms"]) == {"real", "simulated", "error_pct"}
    assert read["mean_e2el_ms"]["real"] == same.metrics["mean_e2el_ms"]["real"]
    with (tmp_path / "out" / "requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["request"] for row in rows] == list(same.run.names)
    e2el_ms = [float(row["simulated_e2el_ms"]) for row in rows]
    np.testing.assert_allclose(e2el_ms, 1e3 * same.simulated["e2el"], atol=1e-6)
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings["scheduler"]["num_blocks"] == 200
    assert settings["cost"]["base_s"] == 0.01


def test_a_wait_of_zero_has_no_relative_error(tmp_path) -> None:
    table = RequestTable.from_columns(arrival_time_s=[0.0], prompt_tokens=[4], output_tokens=[2])
    run = ServedRun(table, ("a",), np.zeros(1), np.full(1, 0.1), np.full(1, 0.2))
    replay = replay_run(run, LIMITS, COST)
    assert math.isnan(replay.metrics["mean_queue_wait_ms"]["error_pct"])
    write_replay(replay, tmp_path)
    read = json.loads((tmp_path / "replay.json").read_text())
    assert read["mean_queue_wait_ms"] == {"real": 0.0, "simulated": 0.0, "error_pct": None}
    assert ("mean_queue_wait_ms", "0", "0", "-") in [
        (name, real.split(".")[0], simulated.split(".")[0], error)
        for name, real, simulated, error in replay_table(replay).rows
    ]


def test_what_cannot_finish_is_noted() -> None:
    small = LIMITS.replace(num_blocks=12)
    replay = replay_run(_made_run(), small, COST)
    assert replay.num_unfinished > 0
    assert any("did not finish" in note for note in replay.notes)


def test_a_replay_serves_in_order_of_arrival() -> None:
    with pytest.raises(ConfigError, match="policy is 'priority': a replay serves in order of arr"):
        replay_run(_made_run(), LIMITS.replace(policy="priority"), COST)


@pytest.mark.skipif(not can_plot(), reason="matplotlib is not installed")
def test_the_chart_is_written(same: Replay, tmp_path) -> None:
    plot_replay(same, tmp_path / "replay.png")
    assert (tmp_path / "replay.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_recorded_vllm_run_is_met(shared_dir, is_async: bool) -> None:
    run = read_served_run(shared_dir / "timings" / "vllm_run_rtxpro6000_llama8b.csv")
    server = SchedulerConfig(
        max_num_seqs=128, max_num_batched_tokens=2048, num_blocks=12_000, async_scheduling=is_async
    )
    replay = replay_run(run, server, TwoRegimeCost(preset="rtx-pro-6000/llama-3.1-8b"))
    metrics = replay.metrics
    assert abs(metrics["mean_tpot_ms"]["error_pct"]) < 3.0
    assert abs(metrics["mean_e2el_ms"]["error_pct"]) < 5.0
    assert abs(metrics["p99_ttft_ms"]["error_pct"]) < 5.0
    assert replay.num_unfinished == 0
    assert int(replay.result.requests["num_preemptions"].sum()) == 0
