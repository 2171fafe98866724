from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet
import pytest
import yaml

from sched_env.config import EnvConfig
from sched_env.errors import SchedEnvError, TraceError, UnknownNameError
from sched_env.evaluation import cell as cell_module
from sched_env.evaluation import runner as runner_module
from sched_env.evaluation.journal import Journal
from sched_env.evaluation.runner import EvaluationError, evaluate
from sched_env.workload import RequestTable, TraceSource

POLICIES = ["fcfs", "weighted_sjf"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return RequestTable.from_columns(
        arrival_time_s=np.concatenate([[0.0], np.cumsum(rng.exponential(0.05, 399))]),
        prompt_tokens=rng.integers(100, 3000, 400),
        output_tokens=rng.integers(1, 300, 400),
        source=TraceSource(name="made"),
    )


@pytest.fixture(scope="module")
def result(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return evaluate(POLICIES, [table], [0.7, 2.5], 2, split="all", out_dir=folder)


def test_rows_are_the_grid_in_order(result):
    keys = [(row["policy"], row["trace"], row["load"], row["seed"]) for row in result.rows]
    assert keys == [(p, "made", ld, s) for p in POLICIES for ld in (0.7, 2.5) for s in (0, 1)]
    assert all(row["num_injected"] == 400 for row in result.rows)
    assert {row["length_prediction"] for row in result.rows} == {"noisy(0.5)"}
    assert {row["policy_kind"] for row in result.rows} == {"heuristic"}


def test_load_is_the_rate_over_what_fcfs_drains(result):
    for row in result.rows:
        assert row["request_rate"] == pytest.approx(row["load"] * row["fcfs_capacity_rps"])


def test_policies_are_paired_by_seed(result):
    rows = {(row["policy"], row["load"], row["seed"]): row for row in result.rows}
    drawn = [f"num_injected_{name}" for name in ("interactive", "standard", "batch")]
    for load in (0.7, 2.5):
        for seed in (0, 1):
            ours, theirs = (rows[policy, load, seed] for policy in POLICIES)
            assert [ours[key] for key in drawn] == [theirs[key] for key in drawn]
            if load > 1:
                assert ours["goodput_weighted"] < theirs["goodput_weighted"]
    first, second = rows["fcfs", 0.7, 0], rows["fcfs", 0.7, 1]
    assert [first[key] for key in drawn] != [second[key] for key in drawn]


def test_a_heavier_load_is_served_worse(result):
    rows = {(row["policy"], row["load"], row["seed"]): row for row in result.rows}
    light, heavy = rows["fcfs", 0.7, 0], rows["fcfs", 2.5, 0]
    assert light["goodput_weighted"] > heavy["goodput_weighted"]


def test_files(result):
    folder = result.out_dir
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "results.json",
        "results.parquet",
        "summary.json",
        "config.yaml",
        "environment.json",
    }
    rows = json.loads((folder / "results.json").read_text())
    columns = pyarrow.parquet.read_table(folder / "results.parquet").to_pydict()
    assert [row["goodput_weighted"] for row in rows] == columns["goodput_weighted"]
    assert list(columns) == list(rows[0])
    assert rows[0]["goodput_weighted"] == result.rows[0]["goodput_weighted"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["best_heuristic"] == result.comparison.best_heuristic
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["seeds"], config["loads"], config["split"]) == ([0, 1], [0.7, 2.5], "all")
    assert EnvConfig.from_mapping(config["env"]).split == "all"
    assert "numpy" in json.loads((folder / "environment.json").read_text())["packages"]


def test_processes_give_the_same_rows(result, table):
    parallel = evaluate(POLICIES, [table], [0.7, 2.5], 2, split="all", workers=2)
    assert repr(parallel.rows) == repr(result.rows)


def test_the_seed_draws_synthetic_traces_and_every_policy_meets_the_same():
    rows = evaluate(POLICIES, ["chatbot"], 1.0, [0, 5]).rows
    injected = {(row["policy"], row["seed"]): row["num_injected"] for row in rows}
    for seed in (0, 5):
        assert injected["fcfs", seed] == injected["weighted_sjf", seed]
    assert injected["fcfs", 0] != injected["fcfs", 5]


def test_privileged_columns_are_dropped(table):
    env = EnvConfig()
    env = env.replace(observation=env.observation.replace(privileged=True))
    (row,) = evaluate(["fcfs"], [table], None, [3], env, split="all").rows
    assert row["load"] is None
    assert row["request_rate"] == pytest.approx(table.mean_rate_rps)


def test_a_timeline_of_single_tokens_has_null_tpot(tmp_path):
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 1.0], prompt_tokens=[10, 10], output_tokens=[1, 1]
    )
    evaluate(["fcfs"], [table], None, 1, split="all", out_dir=tmp_path)
    (row,) = json.loads((tmp_path / "results.json").read_text())
    assert row["mean_tpot_ms"] is None
    assert row["num_finished"] == 2


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"policies": ["fcsf"]}, UnknownNameError, "Did you mean 'fcfs'"),
        ({"traces": ["azure_cnv"]}, TraceError, "Did you mean 'azure_conv'"),
        ({"traces": ["no/such.csv"]}, TraceError, "such.csv"),
        ({"split": "tset"}, UnknownNameError, "Did you mean 'test'"),
        ({"loads": [0]}, SchedEnvError, "load 0 is not possible"),
        ({"seeds": 0}, SchedEnvError, "0 seeds are not enough"),
        ({"workers": 0}, SchedEnvError, "0 workers are not possible"),
        ({"workers": 1.5}, SchedEnvError, r"1\.5 workers are not possible"),
        ({"max_requests": 0}, SchedEnvError, "max_requests 0 is not possible"),
        ({"max_requests": 2.5}, SchedEnvError, r"max_requests 2\.5 is not possible"),
        ({"starvation_s": math.nan}, SchedEnvError, "starvation_s nan is not possible"),
        ({"starvation_s": -5}, SchedEnvError, "starvation_s -5 is not possible: give 0 s or more"),
        ({"starvation_s": "5"}, SchedEnvError, "starvation_s '5' is not possible"),
        ({"policies": ["fcfs", "fcfs"]}, SchedEnvError, "policy 'fcfs' is given twice"),
    ],
)
def test_faults_are_found_before_anything_is_written(tmp_path, changes, error, message):
    call = {"policies": ["fcfs"], "traces": ["chatbot"], "loads": [1.0], "seeds": 1} | changes
    with pytest.raises(error, match=message):
        evaluate(**call, out_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_the_folder_is_a_file(tmp_path, table):
    (tmp_path / "out").write_text("")
    with pytest.raises(SchedEnvError, match="is a file: name a folder"):
        evaluate(["fcfs"], [table], 1.0, 1, split="all", out_dir=tmp_path / "out")


def failing_from(call_number, error, monkeypatch):
    """Make the simulation of one cell fail."""
    calls = []
    simulate = cell_module.simulate

    def sometimes(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) >= call_number:
            raise error
        return simulate(*arguments, **keywords)

    monkeypatch.setattr(cell_module, "simulate", sometimes)
    return calls


def test_a_failing_cell_says_which_one_and_keeps_the_rows_so_far(tmp_path, table, monkeypatch):
    failing_from(3, ZeroDivisionError("oh"), monkeypatch)
    with pytest.raises(EvaluationError, match=r"'fcfs', trace 'made', load 0\.7, seed 1: ZeroDiv"):
        evaluate(POLICIES, [table], 0.7, 2, split="all", out_dir=tmp_path)
    (partial,) = tmp_path.iterdir()
    rows = [json.loads(line) for line in partial.read_text().splitlines()[1:]]
    assert [(row["policy"], row["seed"]) for row in rows] == [("fcfs", 0), ("weighted_sjf", 0)]


def test_a_users_fault_in_a_cell_stays_a_users_fault(table, monkeypatch):
    failing_from(1, SchedEnvError("does not fit"), monkeypatch)
    with pytest.raises(SchedEnvError, match=r"policy 'fcfs', .* seed 0: does not fit"):
        evaluate(POLICIES, [table], 0.7, 1, split="all")


@pytest.mark.parametrize("tail", [b"", b'{"policy": "fcfs", "tra'])
def test_an_interrupted_evaluation_goes_on(tmp_path, table, monkeypatch, tail):
    question = {"policies": POLICIES, "traces": [table], "loads": [0.7, None], "seeds": 2}
    evaluate(**question, split="all", out_dir=tmp_path / "whole")
    failing_from(4, KeyboardInterrupt(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate(**question, split="all", out_dir=tmp_path / "cut")
    monkeypatch.undo()
    with (tmp_path / "cut" / "results.partial.jsonl").open("ab") as file:
        file.write(tail)  # a kill in the middle of a line
    calls = failing_from(99, None, monkeypatch)
    evaluate(**question, split="all", out_dir=tmp_path / "cut")
    assert len(calls) == 8 - 3
    for name in ("results.json", "results.parquet", "summary.json", "config.yaml"):
        whole, cut = ((tmp_path / folder / name).read_bytes() for folder in ("whole", "cut"))
        assert whole == cut
    assert not (tmp_path / "cut" / "results.partial.jsonl").exists()


def test_an_interrupted_evaluation_of_something_else_is_refused(tmp_path, table, monkeypatch):
    failing_from(2, KeyboardInterrupt(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate(["fcfs"], [table], 0.7, 2, split="all", out_dir=tmp_path)
    before = (tmp_path / "results.partial.jsonl").read_bytes()
    other = table.with_columns(output_tokens=table.output_tokens + 1)
    for trace, load, message in (
        (table, 0.8, r"loads is \[0\.7\] there and \[0\.8\] here"),
        (other, 0.7, r"traces\.0\.requests_sha256 is"),
    ):
        with pytest.raises(SchedEnvError, match=message + r".*Name another folder, repeat"):
            evaluate(["fcfs"], [trace], load, 2, split="all", out_dir=tmp_path)
    assert (tmp_path / "results.partial.jsonl").read_bytes() == before


def test_rows_of_other_step_times_under_the_same_path_are_not_mixed_in(
    tmp_path, table, monkeypatch
):
    steps = tmp_path / "steps.csv"

    def write(decode_ms):
        steps.write_text(
            "gpu,model,tp,precision,n_decode,ctx,prefill_tokens,prefill_past,ms,kind,source\n"
            f"toy,toy,1,bf16,4,512,0,0,{decode_ms},composed,made\n"
            "toy,toy,1,bf16,0,0,128,0,9,composed,made\n"
            "toy,toy,1,bf16,4,512,128,0,11,composed,made\n"
        )

    write(5)
    env = EnvConfig.from_mapping({"cost": {"path": str(steps), "kind": "table", "beyond": "count"}})
    failing_from(2, KeyboardInterrupt(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate(["fcfs"], [table], None, 2, env, split="all", out_dir=tmp_path / "out")
    write(50)
    with pytest.raises(SchedEnvError, match=r"cost_sha256 is .* there and"):
        evaluate(["fcfs"], [table], None, 2, env, split="all", out_dir=tmp_path / "out")


def test_rows_of_another_version_of_the_package_are_not_mixed_in(tmp_path, table, monkeypatch):
    failing_from(2, KeyboardInterrupt(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate(["fcfs"], [table], 0.7, 2, split="all", out_dir=tmp_path)
    monkeypatch.setattr(runner_module, "package_sha256", lambda: "another")
    with pytest.raises(SchedEnvError, match=r"sched_env_sha256 is .* there and 'another' here"):
        evaluate(["fcfs"], [table], 0.7, 2, split="all", out_dir=tmp_path)


def test_an_interrupt_before_the_first_row_stands_in_nobodys_way(tmp_path, table, monkeypatch):
    failing_from(1, KeyboardInterrupt(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate(["fcfs"], [table], 0.7, 1, split="all", out_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    (tmp_path / "results.partial.jsonl").write_text('{"loads": [9.0]}\n{"policy": "fc')  # a kill
    assert evaluate(["fcfs"], [table], 0.7, 1, split="all", out_dir=tmp_path).rows


@pytest.mark.skipif(os.name == "nt", reason="POSIX locks")
def test_two_evaluations_never_write_to_one_folder(tmp_path):
    with Journal(tmp_path, {"a": 1}) as first:
        first.write({"policy": "fcfs"})
        with (
            pytest.raises(SchedEnvError, match="another evaluation is writing to"),
            Journal(tmp_path, {"a": 1}),
        ):
            pass
        assert first.path.exists()


def test_an_interrupt_leaves_earlier_results_whole(tmp_path, table, monkeypatch):
    evaluate(POLICIES, [table], 0.7, 2, split="all", out_dir=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    failing_from(2, KeyboardInterrupt(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate(POLICIES, [table], 0.7, 2, split="all", out_dir=tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(after.pop("results.partial.jsonl").splitlines()) == 2  # what it is about, and a row
    assert after == before


def test_results_of_another_evaluation_are_not_replaced(tmp_path, table):
    first = evaluate(["fcfs"], [table], 0.7, 1, split="all", out_dir=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        SchedEnvError, match=r"an evaluation of something else: loads is \[0\.7\] there and"
    ):
        evaluate(["fcfs"], [table], 0.8, 1, split="all", out_dir=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    again = evaluate(["fcfs"], [table], 0.7, 1, split="all", out_dir=tmp_path)
    assert again.rows == first.rows
    (tmp_path / "config.yaml").write_text("- nothing")
    with pytest.raises(SchedEnvError, match=r"absent there.*Name another folder, or remove"):
        evaluate(["fcfs"], [table], 0.7, 1, split="all", out_dir=tmp_path)


def test_a_fault_in_another_process_names_its_cell(tmp_path, table, monkeypatch):
    source = "def broken(request, now):\n    return request.no_such_field\n"
    (tmp_path / "broken_key_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        SchedEnvError, match=r"broken_key_module:broken.*seed [01]: .*no_such_field"
    ):
        evaluate(["broken_key_module:broken"], [table], 0.7, 2, split="all", workers=2)


def test_neither_torch_nor_matplotlib_is_imported(repository):
    code = (
        "import sys, sched_env.evaluation.runner, sched_env.evaluation.report\n"
        "found = {'torch', 'matplotlib', 'stable_baselines3'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or 0)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository)
    assert (done.returncode, done.stderr) == (0, "")
