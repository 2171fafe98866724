"""Scripts outside the package speak to their users as ``sched-env`` does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import tyro

from sched_env.cli.main import Command, run_script
from sched_env.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").glob("*.py")])


@dataclass(frozen=True)
class Arguments:
    """Count."""

    number: tyro.conf.Positional[int] = 1
    """What to return."""


def count(arguments: Arguments) -> int:
    if arguments.number > 5:
        raise ConfigError(f"{arguments.number} is\ntoo many")
    return arguments.number


def test_a_script_returns_what_its_command_does() -> None:
    assert run_script(Command(Arguments, count), "count.py", ["3"]) == 3


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("7", "count.py: error: 7 is too many\n"),
        ("x", "count.py: error: NUMBER 'x': give a whole number\n"),
        ("--nope", "count.py: error: no option '--nope'. It has none; see count.py --help\n"),
    ],
)
def test_a_fault_is_one_line(
    argument: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(Command(Arguments, count), "count.py", [argument]) == 2
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_of_the_repository_does_so(script: Path) -> None:
    if script.name == "sim_to_real.py":
        pytest.importorskip("torch")
    command = [sys.executable, str(script), "--no-such-option"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "'--no-such-option'" in done.stderr
