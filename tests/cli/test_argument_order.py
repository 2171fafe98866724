"""Options and positional arguments in any order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sched_env.cli.argument_order import arrange


@dataclass(frozen=True)
class _Arguments:
    config: str
    seed: int = 0
    run_dir: str = ""
    as_json: bool = False


@pytest.mark.parametrize(
    ("texts", "positionals", "options"),
    [
        ("a --seed 3 b=1", ["a", "b=1"], {"seed": "3"}),
        ("--seed 3 a b=1", ["a", "b=1"], {"seed": "3"}),
        ("--seed=3 a", ["a"], {"seed": "3"}),
        ("--run-dir x=y a", ["a"], {"run_dir": "x=y"}),
        ("--run-dir=x=y a", ["a"], {"run_dir": "x=y"}),
        ("--seed -1 a", ["a"], {"seed": "-1"}),
        ("--as-json a", ["a"], {"as_json": "true"}),
        ("--no-as-json a", ["a"], {"no_as_json": "true"}),
        ("--help a", ["a"], {"help": "true"}),
        ("a --seed", ["a"], {}),
        ("-", ["-"], {}),
        ("", [], {}),
    ],
)
def test_arrange(texts: str, positionals: list[str], options: dict[str, str]) -> None:
    arranged = arrange(texts.split(), _Arguments)
    assert arranged.positionals == positionals
    assert arranged.options == options
    assert arranged.texts[: len(positionals)] == positionals
    assert sorted(arranged.texts) == sorted(texts.split())
