from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import torch

from sched_env.cli.main import main
from sched_env.errors import ConfigError
from sched_env.executor.device_profile import ProfileRequest, profile_device
from sched_env.executor.profile import MeasuredStep, place_step
from sched_env.executor.shapes import SHAPES
from sched_env.executor.step_clock import read_bandwidth
from sched_env.executor.step_grid import GridLimits, StepPoint, step_grid
from sched_env.executor.step_table import COLUMNS, StepTableHead, step_table
from sched_env.executor.torch_executor import TorchExecutor
from tests.executor.small_models import TINY

SMALL = {
    "max_num_seqs": 2,
    "max_num_batched_tokens": 8,
    "max_context_tokens": 32,
    "repeats": 1,
    "block_size": 4,
}


def read_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_a_step_is_placed_with_its_sizes_and_blocks_dealt_in_turn() -> None:
    executor = TorchExecutor(TINY, 40, 4)
    chunks = place_step(executor, StepPoint(2, 13, 5, 10))
    assert [(chunk.start, chunk.num_tokens) for chunk in chunks] == [(12, 1), (12, 1), (10, 5)]
    tables = [executor.tables.table(row).tolist() for row in range(3)]
    assert tables == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    again = place_step(executor, StepPoint(1, 4, 0, 0))
    assert len(again) == 1
    assert executor.tables.num_free == 39


def test_steps_below_the_floor_are_left_out_and_listed() -> None:
    done = []
    request = ProfileRequest(**SMALL, bandwidth=1e15)
    profile = profile_device(request, "test", lambda count, total: done.append((count, total)))
    assert not profile.rejected
    assert done[-1][0] == done[-1][1] == len(profile.steps)
    assert profile.provenance["bandwidth_was"] == "given"
    with pytest.raises(ConfigError, match=r"faster than memory of 0\.0 GB/s allows"):
        profile_device(ProfileRequest(**SMALL, bandwidth=1e3), "test")


def test_a_profile_whose_time_is_up_holds_steps_of_all_kinds() -> None:
    whole = profile_device(ProfileRequest(**SMALL, bandwidth=1e15), "test")
    part = profile_device(ProfileRequest(**SMALL, bandwidth=1e15, max_seconds=1e-9), "test")
    assert len(part.steps) == 1
    assert part.provenance["num_points"] == len(whole.steps)
    points = [step.point for step in whole.steps]
    limits = GridLimits(**whole.provenance["limits"])
    assert points == step_grid(limits)


def test_a_time_below_the_floor_is_impossible() -> None:
    point = StepPoint(1, 16, 0, 0)
    assert MeasuredStep(point, 2e-3, 0.0, 2e-3).is_possible
    assert not MeasuredStep(point, 1.9e-3, 0.0, 2e-3).is_possible


def test_the_table_has_the_columns_of_measured_steps() -> None:
    head = StepTableHead("GPU, 80 GB", "toy", "bfloat16", "engine", "test")
    steps = [MeasuredStep(StepPoint(3, 64, 16, 128), 0.0123, 0.0, 0.0)]
    rows = list(csv.DictReader(io.StringIO(step_table(head, steps))))
    assert tuple(rows[0]) == COLUMNS
    assert rows[0] == {
        "gpu": "GPU, 80 GB",
        "model": "toy",
        "tp": "1",
        "precision": "bf16",
        "engine": "engine",
        "phase": "mixed",
        "n_decode": "3",
        "ctx": "64",
        "prefill_tokens": "16",
        "prefill_past": "128",
        "new_tokens": "19",
        "ms": "12.3",
        "kind": "measured_step",
        "source": "test",
    }


def test_columns_are_those_of_the_reference_tables(shared_dir: Path) -> None:
    with (shared_dir / "timings" / "steps_aic.csv").open(encoding="utf-8") as file:
        assert tuple(next(csv.reader(file))) == COLUMNS


def test_profile_run_writes_a_table_and_how_it_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--max-num-seqs", "2", "--max-num-batched-tokens", "4", "--max-context", "16"]
    out = tmp_path / "made" / "here"
    assert main(["profile", "run", "--out", str(out), *options, "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    assert "toy (9 M parameters, float32)" in printed
    said = json.loads((out / "profile.json").read_text())
    rows = read_rows(out / "steps.csv")
    assert len(rows) == said["num_steps"] > 5
    assert said["machine"]["created_utc"]
    assert said["limits"]["max_num_seqs"] == 2
    assert all(float(row["ms"]) > 0 for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "toi"], "no model 'toi'. Did you mean 'toy'?"),
        (["--device", "cuda:77"], "device 'cuda:77' is not there"),
        (["--repeats", "0"], "repeats 0 is not allowed"),
        (["--bandwidth", "nan"], "bandwidth nan is not allowed"),
        (["--max-context", "-5"], "max_context_tokens -5 is not allowed"),
        (["--max-seconds", "0"], "max_seconds 0 is not allowed"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "run", "--out", str(tmp_path / "out"), *options]) == 2
    assert not (tmp_path / "out").exists()
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_bandwidth_is_plausible() -> None:
    cpu = torch.device("cpu")
    assert 1e8 < read_bandwidth(cpu, 2**20) < 1e13


@pytest.mark.gpu
def test_a_profile_on_cuda(cuda: str, tmp_path: Path) -> None:
    options = ["--max-num-seqs", "9", "--max-num-batched-tokens", "2048", "--max-context", "2048"]
    arguments = ["profile", "run", "--device", cuda, "--out", str(tmp_path), *options]
    assert main([*arguments, "--repeats", "3", "--model", "llama-1b"]) == 0
    rows = read_rows(tmp_path / "steps.csv")
    assert {row["precision"] for row in rows} == {"bf16"}
    assert {row["phase"] for row in rows} == {"decode", "prefill", "mixed"}
    said = json.loads((tmp_path / "profile.json").read_text())
    assert said["bandwidth_bytes_per_s"] > 1e11
    assert len(said["rejected"]) <= len(rows) / 100
    sizes = ("n_decode", "ctx", "prefill_tokens", "prefill_past")
    times_ms = {tuple(int(row[size]) for size in sizes): float(row["ms"]) for row in rows}
    # 2,048 tokens of 1.2 G weights are 5 TFLOP: no GPU does that in the time of one token.
    assert times_ms[0, 0, 2048, 0] > 2 * times_ms[1, 16, 0, 0]
    # A graph's step of one token is not far from the time in which the weights are read.
    least_ms = 1e3 * 2 * SHAPES["llama-1b"].step_parameters / said["bandwidth_bytes_per_s"]
    assert times_ms[1, 16, 0, 0] < 10 * least_ms


@pytest.mark.gpu
def test_a_bandwidth_on_cuda(cuda: str) -> None:
    device = torch.device(cuda)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    assert 1e11 < read_bandwidth(device, 2**34) < 2e13
    assert torch.cuda.memory_allocated(device) == before
    assert torch.cuda.max_memory_allocated(device) < before + 2**32
