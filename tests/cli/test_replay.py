"""The command that replays real runs: what it prints, writes and refuses."""

from __future__ import annotations

import json

import pytest

from sched_env.cli.main import main
from tests.cost.made_steps import GROUP, made_steps, write_steps

HEADER = "request,arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,last_token_s\n"
ROWS = "a,0,100,3,0,0.01,0.03\nb,0.005,50,1,0.01,0.02,0.02\n"
LIMITS = ["--num-blocks", "500", "--max-num-seqs", "8", "--max-num-batched-tokens", "256"]


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text(HEADER + ROWS)
    return str(path)


def _replay(run_file, tmp_path, *options, cost="h100-sxm/llama-3.1-8b"):
    out = str(tmp_path / "out")
    return main(["replay", run_file, "--cost", cost, *LIMITS, "--out", out, *options])


def test_a_replay_prints_and_writes_the_comparison(run_file, tmp_path, capsys) -> None:
    options = ["--async-scheduling", "--prefix-caching", "--no-reserve-full-isl"]
    assert _replay(run_file, tmp_path, "--engine-overhead-ms", "1.5", *options) == 0
    printed = capsys.readouterr().out
    assert "mean_tpot_ms" in printed
    assert "0 preemptions" in printed
    read = json.loads((tmp_path / "out" / "replay.json").read_text())
    assert read["makespan_s"]["real"] == 0.03
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    scheduler = settings["scheduler"]
    assert scheduler["async_scheduling"]
    assert scheduler["enable_prefix_caching"]
    assert not scheduler["reserve_full_isl"]
    assert scheduler["num_blocks"] == 500
    assert settings["cost"]["engine_overhead"] == {"per_step_ms": 1.5, "per_seq_ms": 0.016}


def test_more_overhead_makes_the_run_longer(run_file, tmp_path) -> None:
    makespans = []
    for milliseconds in ("0", "5"):
        options = ["--engine-overhead-ms", milliseconds, "--engine-overhead-per-seq-ms", "0"]
        assert _replay(run_file, tmp_path, *options) == 0
        read = json.loads((tmp_path / "out" / "replay.json").read_text())
        makespans.append(read["makespan_s"]["simulated"])
    assert makespans[1] - makespans[0] == pytest.approx(3 * 0.005)


def test_a_measured_table_is_a_cost_too(run_file, tmp_path) -> None:
    path = str(write_steps(tmp_path / "t.csv", made_steps()))
    assert _replay(run_file, tmp_path, cost=path) == 0
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings["cost"]["beyond"] == "count"
    assert settings["simulation"]["num_steps_beyond_table"] == 0


def test_a_profile_is_a_cost_too(run_file, tmp_path) -> None:
    path = str(write_steps(tmp_path / "t.csv", made_steps()))
    assert main(["profile", "fit", path, "--out", str(tmp_path / "fit")]) == 0
    folder = str(tmp_path / "fit" / "toy-gpu_toy-model")
    assert _replay(run_file, tmp_path, "--engine-overhead-ms", "3", cost=folder) == 0
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (settings["cost"]["kind"], settings["cost"]["beyond"]) == ("table", "count")
    assert settings["cost"]["engine_overhead"]["per_step_ms"] == 3.0


def test_a_table_of_several_groups_needs_a_choice(run_file, tmp_path, capsys) -> None:
    other = made_steps()
    two = write_steps(
        tmp_path / "t.csv", other, type(other)("other/model", *list(vars(other).values())[1:])
    )
    assert _replay(run_file, tmp_path, cost=str(two)) == 2
    assert "holds 2 groups" in capsys.readouterr().err
    assert _replay(run_file, tmp_path, "--cost-group", GROUP, cost=str(two)) == 0


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (HEADER + "a,0,100,3,0,0.01\n", [], "line 2: 6 fields"),
        ("a,b\n1,2\n", [], "'request' is missing"),
        (HEADER + ROWS, ["--cost", "h100/llama"], "no step-time preset 'h100/llama'"),
        (HEADER + ROWS, ["--cost", "none.csv"], "none.csv cannot be read"),
        (HEADER + ROWS, ["--engine-overhead-ms", "-1"], "per_step_ms: -1.0 is not allowed"),
        (HEADER + ROWS, ["--num-blocks", "0"], "num_blocks: 0 is not allowed"),
        (HEADER + ROWS, ["--policy", "priority"], "no option '--policy'"),
        (HEADER + ROWS, ["--async-schedulin"], "no option '--async-schedulin'. Did you mean"),
    ],
)
def test_faults_are_one_line(text, options, message, tmp_path, capsys) -> None:
    path = tmp_path / "run.csv"
    path.write_text(text)
    assert _replay(str(path), tmp_path, *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_limits_are_never_guessed(run_file, tmp_path, capsys) -> None:
    command = ["replay", run_file, "--cost", "h100-sxm/llama-3.1-8b", "--out", str(tmp_path)]
    assert main([*command, *LIMITS[2:]]) == 2
    assert "--num-blocks is missing" in capsys.readouterr().err
