"""What the progress of training shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from sched_env.cli.train_progress import TrainProgressBar, describe


@dataclass
class _Standing:
    num_decisions: int
    total_decisions: int = 1000
    decisions_per_s: float = 12345.6
    metrics: Mapping[str, float] = field(default_factory=dict)


def test_describe_leaves_out_what_is_not_known() -> None:
    metrics = {"rollout/ep_rew_mean": math.nan, "eval/goodput_weighted": 0.91234}
    text = describe(_Standing(5, metrics=metrics))
    assert text == "12,346 decisions/s, validation goodput 0.9123"


def test_one_line_for_each_tenth_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainProgressBar(1000) as bar:
        for done in range(10, 1001, 10):
            bar.update(_Standing(done))
    lines = capsys.readouterr().err.splitlines()
    assert 9 <= len(lines) <= 11
    assert lines[0].startswith("train 1 %")
