"""No command replaces what another question, or another command, has left in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from sched_env.cli.main import main

SIMULATE = ["simulate", "--trace", "few.csv", "--out", "out", "--policy"]
EVALUATE = ["evaluate", "--trace", "few.csv", "--split", "all", "--load", "own", "--seeds", "1"]
EVALUATE += ["--out", "out", "--policies"]
ARENA = ["arena", "quick", "traces.few=few.csv", "traces.azure_conv=few.csv", "split=all"]
ARENA += ["traces.azure_code=few.csv", "traces.mooncake_conv=few.csv", "ceilings.enabled=false"]
ARENA += ["bursts={}", "num_seeds=1", "loads=[1.0]", "max_requests=20", "--out", "out"]
TRAIN = ["train", "experiment/demo", "--run-dir", "out"]
TUNE = ["tune", "env/h100_8b_small_kv", "trace=[few.csv]", "--iterations", "1", "--out", "out"]


@pytest.fixture(autouse=True)
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{index * 0.2},{50 + index},{5 + index % 7}\n" for index in range(60))
    Path("few.csv").write_text("arrival_time_s,prompt_tokens,output_tokens\n" + rows)
    Path("sub").mkdir()
    Path("sub/few.csv").write_text("arrival_time_s,prompt_tokens,output_tokens\n1,2,3\n" + rows)


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (
            [*SIMULATE, "fcfs"],
            (
                [*SIMULATE, "sjf"],
                [*SIMULATE, "fcfs", "scheduler.num_blocks=900"],
                [*SIMULATE, "fcfs", "--trace", "sub/few.csv"],
                [*EVALUATE, "fcfs"],
                ARENA,
                TUNE,
                TRAIN,
            ),
        ),
        ([*EVALUATE, "fcfs"], ([*SIMULATE, "fcfs"], [*EVALUATE, "sjf"], ARENA, TUNE, TRAIN)),
        ([*ARENA, "policies=[fcfs]"], ([*ARENA, "policies=[sjf]"], [*EVALUATE, "fcfs"], TUNE)),
    ],
)
def test_results_of_something_else_stay(
    first: list[str], others: tuple[list[str], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    if any(command[0] == "tune" for command in others):
        pytest.importorskip("cmaes")
    assert main(first) == 0
    before = contents()
    for command in others:
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "out holds the results of" in error
        assert "ame another folder" in error
        assert contents() == before
    assert main(first) == 0


def test_a_search_on_other_requests_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cmaes")
    few = ["tuning.population=4", "tuning.scenarios=1", "tuning.validation_scenarios=1"]
    command = ["tune", "azure_conv", "env.trace=[few.csv]", "tuning.requests_per_scenario=5"]
    command += ["--iterations", "1", "--out", "out", *few]
    assert main(command) == 0
    before = contents()
    assert main([*command, "objective.p95_ttft_weight=0.1"]) == 2
    assert "objective.p95_ttft_weight is 0.0 there and 0.1 here" in capsys.readouterr().err
    assert main(TRAIN) == 2
    assert "error: out holds the results of a search: name another" in capsys.readouterr().err
    Path("few.csv").write_bytes(Path("sub/few.csv").read_bytes())
    assert main(command) == 2
    assert "holds the results of a search of something else" in capsys.readouterr().err
    assert contents() == before


def test_a_search_does_not_find_its_policys_place_taken_when_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("cmaes")
    Path("out/policy").mkdir(parents=True)
    Path("out/policy/notes.txt").write_text("mine")
    assert main(TUNE) == 2
    captured = capsys.readouterr()
    assert "policy exists and is no policy folder: move it away, or give another" in captured.err
    assert "tune 0 %" not in captured.err
    assert list(contents()) == ["out/policy/notes.txt"]


def test_an_interrupted_evaluation_is_in_nobodys_hands(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out/results.partial.jsonl").write_text('{"loads": [9.0]}\n{"policy": "fcfs"}\n')
    for command in ([*SIMULATE, "fcfs"], ARENA, TRAIN):
        assert main(command) == 2
        assert "out holds the results of an evaluation" in capsys.readouterr().err
    assert len(contents()) == 1
