"""The commands around step times: fit, check, kv-pool, aiconfigurator."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from sched_env.cli.main import main
from sched_env.config.env import EnvConfig
from sched_env.cost.measured import read_measured_steps
from sched_env.cost.models import cost_record
from sched_env.cost.predict import kernel_ms
from sched_env.evaluation.plots import can_plot
from tests.cost.made_steps import GROUP, made_steps, write_steps


@pytest.fixture
def table(tmp_path):
    return str(write_steps(tmp_path / "t.csv", made_steps(bump=0.02)))


@pytest.mark.parametrize("model", ["table", "two_regime", "affine"])
def test_fit_writes_a_profile_that_a_configuration_takes(table, model, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert main(["profile", "fit", table, "--model", model, "--out", str(out)]) == 0
    folder = out / "toy-gpu_toy-model"
    printed = capsys.readouterr().out
    assert f"cost: {{kind: profile, path: {folder}}}" in printed
    assert "MAPE" in printed
    cost = cost_record(EnvConfig(cost={"kind": "profile", "path": str(folder)}).cost)
    steps = made_steps(bump=0.02)
    worst = abs(kernel_ms(cost, steps) / steps.ms - 1.0).max()
    assert worst < {"table": 1e-9, "two_regime": 0.05, "affine": 3.0}[model]
    assert (folder / "residuals.png").is_file() == can_plot()
    errors = json.loads((out / "fit.json").read_text())[GROUP]
    assert set(errors) == {"decode", "prefill", "mixed"}
    assert set(errors["decode"]) == {"num_steps", "mape_pct", "p95_pct", "median_ratio"}
    provenance = json.loads((folder / "profile.json").read_text())["provenance"]
    assert provenance["table"] == "t.csv"
    assert (folder / "steps.csv").is_file()
    assert len(read_measured_steps(folder / "steps.csv")[GROUP]) == len(steps)


def test_fit_is_the_same_for_the_same_seed(table, tmp_path) -> None:
    texts = []
    for place, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        out = tmp_path / place
        main(["profile", "fit", table, "--model", "affine", "--seed", seed, "--out", str(out)])
        texts.append((out / "fit.json").read_bytes())
    assert texts[0] == texts[1] != texts[2]


def test_check_compares_with_a_preset_or_another_model(table, tmp_path, capsys, shared_dir) -> None:
    assert main(["profile", "check", table, "--cost", table]) == 0
    assert "0.00" in capsys.readouterr().out
    assert main(["profile", "check", table]) == 0
    assert f"left out: {GROUP} (no preset of that name)" in capsys.readouterr().out
    real = str(shared_dir / "timings" / "steps_llmservingsim.csv")
    assert main(["profile", "check", real]) == 0
    printed = capsys.readouterr().out
    assert "rtx-pro-6000/qwen3-32b" in printed
    assert "Over all groups" in printed
    assert main(["profile", "check", real, "--cost", "roofline", "--group", GROUP]) == 2
    assert "no group in" in capsys.readouterr().err


def test_kv_pool_prints_the_blocks(capsys) -> None:
    command = ["profile", "kv-pool", "--gpu", "rtx-4090", "--model", "llama-3.1-8b"]
    assert main(command) == 0
    assert capsys.readouterr().out.endswith("scheduler.num_blocks=2587\n")
    assert main([*command, "--reserve-gb", "0"]) == 0
    assert capsys.readouterr().out.endswith("scheduler.num_blocks=3177\n")
    assert main([*command, "--memory-gb", "10"]) == 2
    assert "no room for KV blocks" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("aiconfigurator_core") is not None, reason="the extra is installed")
def test_aiconfigurator_says_what_to_install(tmp_path, capsys) -> None:
    command = ["profile", "aiconfigurator", "--gpu", "h100-sxm", "--model", "llama-3.1-8b"]
    assert main([*command, "--out", str(tmp_path)]) == 2
    assert 'pip install "sched-env[profiles]"' in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "gpu,model\n1,2\n"])
def test_a_broken_table_is_one_line(text, tmp_path, capsys) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    out = tmp_path / "out"
    assert main(["profile", "fit", str(path), "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    "option",
    [
        ("--memory-gb", "nan"),
        ("--memory-gb", "1e300"),
        ("--memory-gb", "-5"),
        ("--reserve-gb", "1e300"),
    ],
)
def test_a_pool_of_impossible_memory_is_one_line(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["profile", "kv-pool", "--gpu", "rtx-4090", "--model", "llama-3.1-8b"]
    assert main([*command, *option]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "function-before" not in error


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999999"])
def test_profile_run_refuses_what_is_no_seed(
    seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert main(["profile", "run", "--out", str(tmp_path / "out"), "--seed", seed]) == 2
    assert f"seed {seed} is not allowed" in capsys.readouterr().err
