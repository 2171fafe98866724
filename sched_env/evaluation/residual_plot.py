"""A chart of what a step-time model is off by, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path

from sched_env.cost.errors_by_phase import HeldOutFit
from sched_env.cost.measured import PHASES
from sched_env.evaluation.files import replacing

PLOT_FILE = "residuals.png"


def plot_residuals(fit: HeldOutFit, title: str, path: Path) -> None:
    """Draw the relative error of each held-out step over its measured time, coloured by phase.

    Args:
        fit: What was held out and predicted.
        title: Over the chart.
        path: PNG file to write, in one piece.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    steps = fit.held_out
    errors_pct = 100.0 * (fit.predicted_ms / steps.ms - 1.0)
    for phase in PHASES:
        rows = steps.phases == phase
        if rows.any():
            mape = fit.errors[phase].mape_pct
            label = f"{phase}: MAPE {mape:.1f} %"
            axes.scatter(steps.ms[rows], errors_pct[rows], s=10, alpha=0.6, label=label)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("measured [ms]")
    axes.set_ylabel("predicted over measured - 1 [%]")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    if len(steps):
        axes.legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
