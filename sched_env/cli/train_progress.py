"""What a training run says of itself while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Self

from sched_env.evaluation.progress import ProgressBar

_SHOWN = {
    "eval/goodput_weighted": "validation goodput",
    "eval/polish_goodput_weighted": "polished",
    "rollout/ep_rew_mean": "reward",
}


class StageBars:
    """One progress bar after another, each with the name of what is being done."""

    def __init__(self) -> None:
        self._stage = ""
        self._bars = ExitStack()
        self._bar: ProgressBar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._bars.close()

    def update(self, stage: str, share_done: float, text: str) -> None:
        """Show which part of a stage is done, 0 to 1; another stage begins another bar."""
        if self._bar is None or stage != self._stage:
            self._bars.close()
            self._stage = stage
            self._bar = self._bars.enter_context(ProgressBar(stage, 1))
        self._bar.update(share_done, text)


def cloning_line(
    is_kept: bool, validation_goodput_before: float, validation_goodput_after: float
) -> str:
    """Return in one line what became of the cloned network.

    Args:
        is_kept: whether it is the policy, and not the network before it.
        validation_goodput_before: of the network before the cloning.
        validation_goodput_after: of the cloned one.
    """
    verdict = "kept" if is_kept else "not kept, the policy is the network before it"
    return (
        f"cloned network: {verdict}; validation goodput {validation_goodput_before:.4f} before, "
        f"{validation_goodput_after:.4f} after"
    )


def describe(decisions_per_s: float | None, metrics: Mapping[str, float]) -> str:
    """Return the speed and the curves that matter most, in one short line.

    Args:
        decisions_per_s: speed of this session, None where nothing decides to learn.
        metrics: the newest curves, by TensorBoard tag.
    """
    parts = [] if decisions_per_s is None else [f"{decisions_per_s:,.0f} decisions/s"]
    for tag, name in _SHOWN.items():
        if math.isfinite(metrics.get(tag, math.nan)):
            parts.append(f"{name} {metrics[tag]:.4g}")
    return ", ".join(parts)
