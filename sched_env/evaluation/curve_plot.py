"""The learning curves of training runs as a picture.

On the left what PPO did, on the right the one or two searches after it and, dashed, what the
cloning at the very end changed.

::

    python -m sched_env.evaluation.curve_plot RUN [RUN ...] FILE.png
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sched_env.errors import ConfigError, run_module
from sched_env.evaluation.files import read_json_mapping, replacing
from sched_env.policy.runtime import load_policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_YLABEL = "weighted goodput, validation split"


def plot_curves(runs: Sequence[Path], path: Path) -> None:
    """Draw validation goodput over decisions, and over requests of the searches that ended a run.

    Args:
        runs: Folders of finished training runs.
        path: PNG file to write, in one piece.

    Raises:
        ConfigError: A folder holds no finished run.
    """
    from matplotlib.figure import Figure

    found = [(run.name, _learning(run), _polish(run)) for run in runs]
    has_polish = any(polish for _, _, polish in found)
    figure = Figure(figsize=(10 if has_polish else 6, 4), dpi=120, layout="constrained")
    panels = figure.subplots(1, 1 + has_polish, squeeze=False)[0]
    _draw(panels[0], [(name, learning) for name, learning, _ in found], "decisions of PPO")
    if has_polish:
        polished = [(name, polish) for name, _, polish in found if polish]
        _draw(panels[1], polished, "requests of the searches after it, and of the cloning")
        panels[1].set_prop_cycle(None)
        for run, (_, _, polish) in zip(runs, found, strict=True):
            if polish:
                points = _cloning(run, polish[-1][0])
                panels[1].plot([x for x, _ in points], [y for _, y in points], "*--")
    panels[0].legend(fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def _learning(run: Path) -> list[tuple[float, float]]:
    file = run / "summary.json"
    if not file.is_file():
        raise ConfigError(f"{run}: no finished training run; give folders that train wrote")
    looks = read_json_mapping(file).get("validation", [])
    return _points(file, looks, "decisions", "score")


def _polish(run: Path) -> list[tuple[float, float]]:
    """Return the looks of the searches, each counted on from the one before.

    A point without goodput parts them: they are judged on other scenarios.
    """
    points: list[tuple[float, float]] = []
    for file in (run / "polish.csv", run / "second_polish.csv"):
        if not file.is_file():
            continue
        with file.open(encoding="utf-8", newline="") as text:
            looks = _points(file, list(csv.DictReader(text)), "num_requests", "validation_goodput")
        spent = points[-1][0] if points else 0.0
        if points:
            points.append((spent, math.nan))
        points += [(spent + count, goodput) for count, goodput in looks]
    return points


def _points(file: Path, rows: Any, x: str, y: str) -> list[tuple[float, float]]:
    try:
        return [(float(row[x]), float(row[y])) for row in rows]
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{file} is damaged: its rows should hold numbers {x} and {y}; restore it"
        ) from None


def _cloning(run: Path, num_requests: float) -> list[tuple[float, float]]:
    """Return goodput before and after the cloning, which follows so many requests of searches."""
    folder = run / "policy"
    training = load_policy(folder).card.training if folder.is_dir() else {}
    if "clone_requests" not in training:
        return []
    names = ("clone_requests", "validation_goodput_before_cloning", "validation_goodput")
    spent, before, after = (float(str(training[name])) for name in names)
    return [(num_requests, before), (num_requests + spent, after)]


def _draw(
    axes: Axes, curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], xlabel: str
) -> None:
    for name, points in curves:
        axes.plot([x for x, _ in points], [y for _, y in points], marker=".", label=name)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(_YLABEL)
    axes.grid(visible=True, alpha=0.3)


def main(arguments: Sequence[str]) -> None:
    """Draw the runs that are named to the file that is named last."""
    if len(arguments) < 2 or not arguments[-1].endswith(".png"):
        raise ConfigError("give run folders, and last the PNG file to write")
    plot_curves([Path(one) for one in arguments[:-1]], Path(arguments[-1]))


if __name__ == "__main__":
    run_module(main)
