"""What the progress of training shows."""

from __future__ import annotations

import math

from sched_env.cli.train_progress import StageBars, cloning_line, describe


def test_describe_leaves_out_what_is_not_known() -> None:
    metrics = {"rollout/ep_rew_mean": math.nan, "eval/goodput_weighted": 0.91234}
    assert describe(12345.6, metrics) == "12,346 decisions/s, validation goodput 0.9123"


def test_each_stage_of_a_training_has_a_line_of_its_own(capsys) -> None:
    with StageBars() as bars:
        for stage, share in (("train", 0.5), ("train", 0.55), ("train", 1.0), ("polish", 0.05)):
            bars.update(stage, share, "text")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["train 50 %, text", "train 100 %, text", "polish 5 %, text"]


def test_a_speed_is_told_only_where_there_is_one() -> None:
    assert describe(None, {"eval/goodput_weighted": 0.5}) == "validation goodput 0.5"


def test_what_became_of_a_cloned_network_is_told() -> None:
    assert cloning_line(True, 0.5, 0.6).startswith("cloned network: kept; validation goodput 0.5")
    told = cloning_line(False, 0.9, 0.8)
    assert "not kept, the policy is the network before it" in told
    assert "0.9000 before, 0.8000 after" in told
