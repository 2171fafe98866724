"""What a training run says of itself while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping

_SHOWN = {
    "eval/goodput_weighted": "validation goodput",
    "eval/polish_goodput_weighted": "polished",
    "rollout/ep_rew_mean": "reward",
}


def describe(decisions_per_s: float, metrics: Mapping[str, float]) -> str:
    """Return the speed and the curves that matter most, in one short line.

    Args:
        decisions_per_s: speed of this session.
        metrics: the newest curves, by TensorBoard tag.
    """
    parts = [f"{decisions_per_s:,.0f} decisions/s"]
    for tag, name in _SHOWN.items():
        if math.isfinite(metrics.get(tag, math.nan)):
            parts.append(f"{name} {metrics[tag]:.4g}")
    return ", ".join(parts)
