"""What the documents show is true: commands, options, Python blocks, configurations."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from sched_env.cli.argument_order import arrange
from sched_env.cli.main import VERBS, Command
from sched_env.config import list_configs

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    found = [_BLOCK.findall(page.read_text(encoding="utf-8")) for page in PAGES]
    return [text for page in found for name, text in page if name == language]


def commands() -> list[str]:
    """Return every sched-env command of the documents, each on one line."""
    lines = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]
    return [line.split(" #")[0] for line in lines if line.startswith("sched-env ")]


def command_of(texts: list[str]) -> tuple[Command, list[str]]:
    module = import_module(f"sched_env.cli.{texts[0]}")
    if hasattr(module, "PARTS"):
        return module.PARTS[texts[1]][1], texts[2:]
    return module.COMMAND, texts[1:]


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 10


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_commands_exist_with_their_options(line: str) -> None:
    texts = shlex.split(line)[1:]
    assert texts[0] in VERBS
    command, rest = command_of(texts)
    known = {field.name for field in fields(command.arguments)} | {"help"}
    assert set(arrange(rest, command.arguments).options) <= known


@pytest.mark.parametrize("text", blocks("python"))
def test_python_blocks_run(text: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_configurations_that_are_named_exist() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(
            r"\b((?:env|agent|cost|trace|experiment)/[a-z0-9_]+)\b(?![/.])",
            page.read_text(encoding="utf-8").replace("sched_env/", "").replace("configs/", ""),
        )
    }
    assert "experiment/azure_conv" in named
    assert {name for name in named if name.split("/")[1]} <= set(list_configs())


def test_the_readme_lists_every_verb() -> None:
    rows = re.findall(r"^\| `(.*) \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert {re.split(r"[` ]", row)[0] for row in rows} == set(VERBS)
