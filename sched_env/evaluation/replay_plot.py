"""A chart of a replay: each latency, real against simulated, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sched_env.evaluation.files import replacing
from sched_env.evaluation.replay import LATENCIES, Replay

PLOT_FILE = "replay.png"

_TITLES = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "E2EL", "queue_wait": "queue wait"}


def plot_replay(replay: Replay, path: Path) -> None:
    """Draw one panel per latency, one point per request, on the line where both are the same.

    Args:
        replay: What to draw.
        path: PNG file to write, in one piece.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 9), dpi=120, layout="constrained")
    for axes, name in zip(figure.subplots(2, 2).flat, LATENCIES, strict=True):
        real_ms, simulated_ms = 1e3 * replay.real[name], 1e3 * replay.simulated[name]
        axes.scatter(real_ms, simulated_ms, s=8, alpha=0.6)
        both = np.concatenate([real_ms, simulated_ms])
        longest = float(np.nanmax(both)) if not np.isnan(both).all() else 1.0
        axes.plot([0, longest], [0, longest], color="black", linewidth=0.8)
        error = replay.metrics[f"mean_{name}_ms"]["error_pct"]
        axes.set_title(f"{_TITLES[name]}: mean {error:+.1f} %")
        axes.set_xlabel("real server [ms]")
        axes.set_ylabel("simulated [ms]")
        axes.grid(alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
