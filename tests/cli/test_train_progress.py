"""What the progress of training shows."""

from __future__ import annotations

import math

from sched_env.cli.train_progress import describe


def test_describe_leaves_out_what_is_not_known() -> None:
    metrics = {"rollout/ep_rew_mean": math.nan, "eval/goodput_weighted": 0.91234}
    assert describe(12345.6, metrics) == "12,346 decisions/s, validation goodput 0.9123"
