"""The command line: verbs, exit codes, one-line errors, help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sched_env.cli.main import VERBS, main


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def assert_one_line_fault(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    assert error.startswith("sched-env: error: ")
    for word in words:
        assert word in error


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for verb in VERBS:
        assert f"\n  {verb} " in shown


def test_no_verb_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: sched-env VERB" in captured.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from sched_env import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sched-env {__version__}\n"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"usage: sched-env {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["inspect", "convert", "synth"])
def test_every_part_of_trace_explains_itself(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", part, "--help"]) == 0
    assert f"usage: sched-env trace {part}" in capsys.readouterr().out


def test_help_shows_the_values_of_the_named_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "experiment/azure_code", "env.scheduler.num_blocks=77", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "env.scheduler.num_blocks=77" in lines
    assert "env.trace=[azure_code]" in lines
    assert "KV cache blocks that requests can use (vLLM's num_gpu_blocks - 1: it keeps" in lines


def test_misspelt_verb_and_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert_one_line_fault(capsys, "no verb 'trian'", "Did you mean 'train'?")
    assert main(["trace", "inspekt"]) == 2
    assert_one_line_fault(capsys, "no part 'inspekt'", "Did you mean 'inspect'?")


def test_misspelt_option_offers_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--polices", "fcfs"]) == 2
    assert_one_line_fault(capsys, "no option '--polices'. Did you mean '--policies'?")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], "CONFIG is missing"),
        (["train", "demo", "--seed", "x"], "--seed 'x': give a whole number"),
        (["export"], "RUN is missing"),
        (["export", "a", "b"], "'b' is one too many"),
        (["doctor", "--all"], "no option '--all'. It has none"),
        (["evaluate", "--split", "tst"], "--split 'tst': give one of train, validation, test, all"),
        (["simulate", "--seed"], "--seed has no value"),
        (["bench", "--seconds", "2s"], "--seconds '2s': give a number"),
        (
            ["trace", "synth", "azure_conv", "--rate-rps", "fast"],
            "--rate-rps 'fast': give a number",
        ),
        (["trace", "inspect", "a.csv", "--no-jsn"], "no option '--no-jsn'"),
        (["evaluate", "--env", ""], "--env '' is empty: give a value"),
        (["simulate", "--out="], "--out '' is empty"),
        (["evaluate", "--policies", " "], "--policies ' ' is empty"),
        (["export", ""], "RUN '' is empty"),
        (["report", ""], "RUN '' is empty"),
        (["train", ""], "CONFIG '' is empty"),
        (["train", "demo", ""], "[KEY=VALUE ...] '' is empty"),
        (["trace", "inspect", ""], "FILE|NAME '' is empty"),
    ],
)
def test_usage_errors_are_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert_one_line_fault(capsys, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "experiment/azure_con"], ["Did you mean 'experiment/azure_conv'?"]),
        (["train", "./none.yaml"], ["no configuration file at none.yaml"]),
        (
            ["train", "demo", "env.scheduler.num_block=7"],
            ["no such key. Did you mean 'num_blocks'"],
        ),
        (["train", "demo", "--seed", "-1"], ["seed: -1 is not allowed"]),
        (["train", "demo", "--total-decisions", "0"], ["total_decisions: 0 is not allowed"]),
        (["train", "demo", "--trace", ","], ["env.trace|trace"]),
        (["evaluate", "scheduler.num_blocks=x"], ["scheduler.num_blocks: 'x' is not allowed"]),
        (["evaluate", "--env", "h100"], ["no configuration 'env/h100'"]),
        (["evaluate", "--load", "high"], ["--load 'high': give a number"]),
        (["evaluate", "--load", "1,,2"], ["--load '1,,2': give numbers separated by commas"]),
        (["evaluate", "--seeds", "1000000000"], ["1000000000 seeds are too many"]),
        (["simulate", "--seed", "-1"], ["seed -1 is not allowed"]),
        (["evaluate", "--policies", "fcfs,,sjf"], ["--policies 'fcfs,,sjf': give names"]),
        (["evaluate", "--policies", "fcsf"], ["Did you mean 'fcfs'?"]),
        (["simulate", "--policy", "agng"], ["Did you mean 'aging'?"]),
        (["simulate", "--trace", "azure_con"], ["azure_con"]),
        (["trace", "inspect", "/no/such/trace.csv"], ["no file '/no/such/trace.csv'"]),
        (["trace", "inspect", "azure_conv", "--window", "5,1"], ["--window '5,1'"]),
        (["trace", "synth", "azure_con"], ["Did you mean 'azure_conv'?"]),
        (["trace", "synth", "azure_conv", "--out", "x.txt"], ["x.txt: write a trace to a name in"]),
        (["trace", "synth", "azure_conv", "--out", "."], [". is a folder: name a file"]),
        (["trace", "synth", "chatbot", "--out", "/no/x.csv"], ["there is no folder /no"]),
        (["report", "/no/such/run"], ["no folder /no/such/run"]),
    ],
)
def test_faults_are_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1, shown.err
    assert shown.err.startswith("sched-env: error: ")
    for word in words:
        assert any(choice in shown.err for choice in word.split("|"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["empty"]),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4,x\n", ["line 2"]),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,-4,5\n", ["line 2"]),
    ],
)
def test_broken_traces_are_one_line(
    content: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    for arguments in (["trace", "inspect", str(path)], ["simulate", "--trace", str(path)]):
        assert main(arguments) == 2
        assert_one_line_fault(capsys, "trace.csv", *words)


def test_fault_of_the_file_system_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.write_text("")
    assert main(["trace", "synth", "azure_conv", "--out", str(place / "a.csv")]) == 2
    assert_one_line_fault(capsys, "a.csv")


def test_interruption(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_texts: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("sched_env.cli.main._run", interrupt)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "sched-env: interrupted\n"


def test_faults_of_the_program_itself_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_texts: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("sched_env.cli.main._run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, env=environment
    )


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import os, sys; from sched_env.cli.main import main\n"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1)\n"
        "sys.exit(main(['--help']))"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stderr) == (141, "")


def test_fault_in_a_process_of_its_own() -> None:
    done = run_python("-m", "sched_env", "simulate", "--policy", "agng")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_importing_and_helping_is_light() -> None:
    code = (
        "import sys\nimport sched_env\nfrom sched_env.cli.main import main\n"
        "main(['--help'])\n"
        "heavy = {'torch', 'stable_baselines3', 'matplotlib', 'numba', 'pyarrow'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
