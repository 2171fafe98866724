"""Evaluations whose clock is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sched_env import EnvConfig, RequestTable
from sched_env.cli.main import main
from sched_env.config import AffineCost, LiveCost
from sched_env.errors import SchedEnvError
from sched_env.evaluation import evaluate

SMALL = {"num_blocks": 100, "max_num_seqs": 4, "max_num_batched_tokens": 64}


def table() -> RequestTable:
    return RequestTable.from_columns(
        arrival_time_s=[0.0, 0.1, 0.2, 0.3],
        prompt_tokens=[30, 60, 10, 20],
        output_tokens=[4, 2, 6, 3],
    )


def live_env() -> EnvConfig:
    env = EnvConfig(cost=LiveCost(clock="cpu_time"))
    return env.replace(scheduler=env.scheduler.replace(**SMALL))


def test_policies_share_model_requests_budget_and_estimate(tmp_path: Path) -> None:
    result = evaluate(
        ["fcfs", "sjf"], {"four": table()}, None, 1, live_env(), split="all", out_dir=tmp_path
    )
    rows = json.loads((tmp_path / "results.json").read_text())
    assert [row["policy"] for row in rows] == ["fcfs", "sjf"]
    assert {row["clock"] for row in rows} == {"measured"}
    assert {row["num_injected"] for row in rows} == {4}
    assert len({row["fcfs_capacity_rps"] for row in rows}) == 1
    assert all(row["mean_e2el_ms"] > 0 for row in rows)
    cost = yaml.safe_load((tmp_path / "config.yaml").read_text())["env"]["cost"]
    assert cost["kind"] == "live"
    assert cost["estimate"]["kind"] == "affine"
    assert cost["estimate"]["base_s"] > 0
    assert result.config["env"]["cost"] == cost


def test_simulations_say_that_their_clock_is_modelled() -> None:
    cost = AffineCost(base_s=0.01, per_decode_s=0.001, per_prefill_token_s=0.001)
    env = live_env().replace(cost=cost)
    result = evaluate("fcfs", {"four": table()}, None, 1, env, split="all")
    assert [row["clock"] for row in result.rows] == ["modelled"]


def test_workers_do_not_share_a_device() -> None:
    with pytest.raises(SchedEnvError, match="one server at a time, not 2"):
        evaluate("fcfs", {"four": table()}, None, 1, live_env(), split="all", workers=2)


@pytest.fixture
def trace_file(tmp_path: Path) -> str:
    path = tmp_path / "four.csv"
    path.write_text(
        "arrival_time_s,prompt_tokens,output_tokens\n0.0,30,4\n0.1,60,2\n0.2,10,6\n0.3,20,3\n"
    )
    return str(path)


@pytest.mark.parametrize(
    "device", [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_the_command_runs_policies_on_the_model(
    device: str,
    trace_file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if device == "cuda":
        request.getfixturevalue("cuda")
    out = tmp_path / "out"
    options = ["--policies", "fcfs,aging", "--trace", trace_file, "--load", "own", "--seeds", "1"]
    server = [f"scheduler.{name}={value}" for name, value in SMALL.items()]
    live = ["--executor", "torch", "--device", device, "--model", "toy", "--split", "all"]
    assert main(["evaluate", *server, *options, *live, "--out", str(out)]) == 0
    rows = json.loads((out / "results.json").read_text())
    assert [row["clock"] for row in rows] == ["measured", "measured"]
    assert [row["num_finished"] for row in rows] == [4, 4]
    assert all(row["mean_tpot_ms"] > 0 for row in rows)
    assert "fcfs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "toy"], "--model goes with --executor torch"),
        (["--device", "cpu"], "--device goes with --executor torch"),
        (["--executor", "torch", "--model", "toi"], "no model 'toi'. Did you mean 'toy'?"),
        (["--executor", "torch", "--device", "cuda:9"], "device 'cuda:9' is not there"),
        (["--executor", "torch", "--workers", "2"], "one server at a time"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    options: list[str], message: str, trace_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--trace", trace_file, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
