"""The verbs that do the work, on small workloads: what they print, write and refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from sched_env.cli.main import main
from sched_env.config import EnvConfig
from sched_env.simulator import simulate
from sched_env.workload import read_trace


@pytest.fixture
def small_trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    assert main(["trace", "synth", "azure_code", "--num-requests", "60", "--out", str(path)]) == 0
    return path


def test_simulate_writes_requests_events_and_summary(
    small_trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["simulate", "--policy", "sjf", "--trace", str(small_trace), "--out", str(out)]
    assert main([*arguments, "--load", "1.5", "scheduler.num_blocks=900"]) == 0
    printed = capsys.readouterr().out
    assert "goodput_weighted" in printed
    assert str(out / "requests.csv") in printed

    env = EnvConfig.from_mapping({"scheduler": {"num_blocks": 900}})
    expected = simulate(read_trace(small_trace), "sjf", env, load=1.5, record_events=True)
    table = pyarrow.parquet.read_table(out / "requests.parquet").to_pydict()
    assert table["row"] == list(range(60))
    assert table["finish_s"] == expected.requests["finish_s"].tolist()
    ttft_ms = 1e3 * (expected.requests["first_token_s"] - expected.requests["arrival_time_s"])
    shown = [np.nan if value is None else value for value in table["ttft_ms"]]
    np.testing.assert_array_equal(shown, ttft_ms)
    assert set(table["outcome"]) <= {"finished", "rejected", "timed_out"}
    assert (out / "requests.csv").read_text().count("\n") == 61

    assert expected.events is not None
    events = pyarrow.parquet.read_table(out / "events.parquet").to_pydict()
    assert events["time_s"] == expected.events["time_s"].tolist()
    assert {"arrive", "admit", "first_token", "finish"} <= set(events["kind"])
    summary = json.loads((out / "summary.json").read_text())
    assert summary["num_injected"] == 60
    assert summary["num_finished"] == table["outcome"].count("finished")


def test_simulate_knows_the_environments_own_service_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "own.csv"
    header = "arrival_time_s,prompt_tokens,output_tokens,service_class"
    trace.write_text(f"{header}\n0,100,5,gold\n1,100,5,tin\n2,100,5,gold\n")
    limits = "weight: 1.0, ttft_slo_s: 1.0, tpot_slo_s: 0.1"
    classes = f"[{{name: gold, share: 0.5, {limits}}}, {{name: tin, share: 0.5, {limits}}}]"
    assert main(["simulate", "--trace", str(trace), f"service.classes={classes}"]) == 0
    assert "num_injected_gold" in capsys.readouterr().out


def test_a_policy_of_the_users_own_is_found_in_the_current_folder(
    small_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def shortest(request, now):\n    return request.prompt_tokens\n"
    (tmp_path / "a_module_of_mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    arguments = ["--trace", str(small_trace), "--policy", "a_module_of_mine:shortest"]
    assert main(["simulate", *arguments]) == 0
    assert sys.path == before


def test_simulate_needs_no_torch(small_trace: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from sched_env.cli.main import main\n"
        f"code = main(['simulate', '--trace', {str(small_trace)!r}, '--out', {str(tmp_path)!r}])\n"
        "heavy = {'torch', 'stable_baselines3', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or code)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_evaluate_and_report(
    small_trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "evaluation"
    arguments = ["evaluate", "--policies", "fcfs,quick=sjf", "--trace", str(small_trace)]
    arguments += ["--load", "1.2,own", "--seeds", "2", "--split", "all", "--out", str(out)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert str(out / "results.json") in printed
    assert max(map(len, printed.replace(str(out), "").splitlines())) <= 80
    rows = json.loads((out / "results.json").read_text())
    cells = {(row["policy"], row["load"], row["seed"]) for row in rows}
    assert cells == {
        (policy, load, seed)
        for policy in ("fcfs", "quick")
        for load in (1.2, None)
        for seed in (0, 1)
    }
    assert main(["report", str(tmp_path)]) == 0
    assert f"report: {out / 'report.md'}" in capsys.readouterr().out
    assert "quick" in (out / "report.md").read_text()


def test_report_tells_an_arena_and_a_simulation_from_the_rest(
    small_trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["simulate", "--trace", str(small_trace), "--out", str(out)]) == 0
    assert main(["report", str(out)]) == 2
    error = capsys.readouterr().err
    assert "holds the results of a simulation" in error
    assert str(out / "summary.json") in error
    arena = tmp_path / "arena"
    arena.mkdir()
    for name in ("arena.md", "config.yaml", "results.json", "summary.json"):
        (arena / name).write_text("{}")
    assert main(["report", str(arena)]) == 0
    assert capsys.readouterr().out == f"report: {arena / 'arena.md'}\n"


def test_report_takes_no_folder_for_a_training_run_that_holds_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("a: 1\n")
    (tmp_path / "summary.json").write_text("{}")
    assert main(["report", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "Training run" not in captured.out
    assert "no results.json" in captured.err


def test_report_of_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_doctor_finds_nothing_amiss(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "self-check: passed" in shown
    assert "extra agents:" in shown


def test_doctor_tells_what_is_amiss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("no batch")

    monkeypatch.setattr("sched_env.cli.doctor._check_scheduler", fail)
    monkeypatch.setattr("sched_env.cli.doctor.BASE_PACKAGES", ("numpy", "no-such-package"))
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "not installed: no-such-package" in captured.out
    assert "self-check: packages are missing" in captured.err


def test_bench_prints_speeds_and_ratios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    small = ["--num-envs", "2", "--num-requests", "50", "--num-plain-requests", "3"]
    small += ["--num-shared-envs", "4"]
    assert main(["bench", *small, "--repeats", "1", "--seconds", "0.01", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    figures = json.loads(out.read_text())
    units = ["steps"] * 8 + ["requests"] * 4 + ["iterations"] + ["decisions"] * 4
    assert [one["unit"] for one in figures["speeds"]] == units
    for one in figures["speeds"]:
        assert one["per_s"] > 0
        assert f"{one['per_s']:,.0f}" in shown
        assert one["best_per_s"] >= one["per_s"]
    assert len(figures["ratios"]) == 20
    rows = ("standard server", "busy", "KV-tight", "idle", "jump-ahead", "overload", "100,000 over")
    rows += ("2 threads over one thread",)
    for words in rows:
        assert any(words in name for name in figures["ratios"])
    assert all(value > 0.0 for value in figures["start_s"].values())
    assert len(figures["start_s"]) == 2


@pytest.mark.parametrize("option", ["--num-envs", "--num-requests", "--repeats", "--seconds"])
def test_bench_refuses_nothing_to_do(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", option, "0"]) == 2
    assert f"{option} 0" in capsys.readouterr().err


def test_bench_looks_at_all_arguments_before_it_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in (
        ["--seconds", "nan"],
        ["--num-plain-requests", "-1"],
        ["--num-envs", "1000000000"],
        ["--out", str(tmp_path)],
        ["--out", str(tmp_path / "none" / "bench.json")],
    ):
        assert main(["bench", *wrong]) == 2
        assert wrong[0] in capsys.readouterr().err


def test_simulate_refuses_its_folder_before_it_runs(
    small_trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.write_text("kept")
    capsys.readouterr()
    assert main(["simulate", "--trace", str(small_trace), "--out", str(place)]) == 2
    shown = capsys.readouterr()
    assert "is a file" in shown.err
    assert shown.out == ""
    assert place.read_text() == "kept"


def test_options_of_train_win_over_overrides() -> None:
    from sched_env.cli.train import TrainArguments, experiment_of

    arguments = TrainArguments(
        config="demo",
        overrides=("seed=5", "env.scheduler.num_blocks=9"),
        trace="azure_code, azure_conv",
        seed=7,
        total_decisions=1000,
    )
    experiment = experiment_of(arguments)
    assert experiment.seed == 7
    assert experiment.total_decisions == 1000
    assert experiment.env.trace == ("azure_code", "azure_conv")
    assert experiment.env.scheduler.num_blocks == 9


def test_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("sched_env.agents.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["export", "runs/none"]) == 2
    error = capsys.readouterr().err
    assert (
        error == 'sched-env: error: torch is not installed: run pip install "sched-env[agents]"\n'
    )


def test_training_run_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    run = tmp_path / "run"
    small = ["agent.num_envs=4", "agent.num_steps=16", "agent.minibatch_size=32"]
    small += ["agent.num_epochs=1", "agent.keep=last", "evaluate_every_decisions=0"]
    train = ["train", "demo", *small, "--total-decisions", "128", "--run-dir", str(run)]
    assert main(train) == 0
    captured = capsys.readouterr()
    assert f"policy: {run / 'policy'}" in captured.out
    assert f"tensorboard --logdir {run}" in captured.out
    assert "decisions/s" in captured.err
    assert "nothing was trained" not in captured.out
    assert main(train) == 0
    assert f"{run} holds the complete run already: nothing was trained" in capsys.readouterr().out

    assert main(["export", str(run), "--out", str(tmp_path / "exported")]) == 0
    assert f"policy: {tmp_path / 'exported'}" in capsys.readouterr().out
    assert main(["report", str(run)]) == 0
    assert "no comparison yet" in capsys.readouterr().out
    assert main([*train, "--seed", "1"]) == 2
    assert "seed" in capsys.readouterr().err


def test_an_interrupted_training_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    import sched_env.agents.train as train_module

    def interrupt_at_once(*_arguments: object, **_keywords: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train_module, "train", interrupt_at_once)
    assert main(["train", "demo"]) == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "--run-dir" not in shown.err

    def interrupt(_: object, place: Path, *, opened: Callable[[Path], None], **_keywords: object):
        opened(place)
        raise KeyboardInterrupt

    monkeypatch.setattr(train_module, "train", interrupt)
    assert main(["train", "demo"]) == 130
    shown = capsys.readouterr()
    place = shown.out.removeprefix("run: ").strip()
    assert f"--run-dir {place}\n" in shown.err
    assert shown.err.endswith("sched-env: interrupted\n")


def test_changed_byte_of_a_policy_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "policy.safetensors").write_bytes(b"\0" * 16)
    assert main(["simulate", "--policy", str(folder)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "policy" in error
