"""Charts of a comparison, where matplotlib is installed."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sched_env.evaluation.compare import HEURISTIC, Comparison
from sched_env.evaluation.files import replacing
from sched_env.evaluation.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEURISTIC_GREYS = ("0.82", "0.70", "0.58", "0.46", "0.34", "0.22")
_NETWORK_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
_CHARACTERS_PER_INCH = 11  # of the default font, about


def can_plot() -> bool:
    """Return whether matplotlib is installed; it is not imported."""
    return find_spec("matplotlib") is not None


def plot_comparison(comparison: Comparison, path: Path) -> None:
    """Draw the metric at each trace and load, and the differences to the best heuristic.

    Args:
        comparison: What to draw; heuristics come out grey, learned policies coloured.
        path: PNG file to write, in one piece.
    """
    from matplotlib.figure import Figure

    conditions = dict.fromkeys((one.trace, one.load) for one in comparison.conditions)
    num_bars = len(conditions) * len(comparison.policies)
    width = min(max(8.0, 0.25 * num_bars), 14.0)
    longest = max(len(one.policy) for one in comparison.policies)
    figure = Figure(figsize=(width, 7), dpi=120, layout="constrained")
    if comparison.best_heuristic is None:
        bars = figure.subplots()
    else:
        bars, differences = figure.subplots(2, 1, height_ratios=(3, 2))
        _draw_differences(differences, comparison)
    _draw_bars(bars, comparison)
    columns = max(1, int(_CHARACTERS_PER_INCH * width / (longest + 8)))
    handles, labels = bars.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def _draw_bars(axes: Axes, comparison: Comparison) -> None:
    conditions = list(dict.fromkeys((one.trace, one.load) for one in comparison.conditions))
    found = {(one.policy, one.trace, one.load): one.mean for one in comparison.conditions}
    nothing = Interval(math.nan, math.nan, math.nan, 0)
    width = 0.8 / len(comparison.policies)
    for position, (policy, colour) in enumerate(_colours(comparison).items()):
        own = [found.get((policy, *condition), nothing) for condition in conditions]
        places = [index + (position + 0.5) * width - 0.4 for index in range(len(conditions))]
        heights = [one.mean for one in own]
        axes.bar(places, heights, width, yerr=_errors(own), color=colour, label=policy)
    loads = ["own rate" if load is None else f"load {load:g}" for _, load in conditions]
    names = [f"{trace}\n{load}" for (trace, _), load in zip(conditions, loads, strict=True)]
    axes.set_xticks(range(len(conditions)), names)
    axes.set_ylabel(f"{comparison.metric}, mean over seeds")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_differences(axes: Axes, comparison: Comparison) -> None:
    colours = _colours(comparison)
    compared = [one for one in reversed(comparison.policies) if one.versus_best is not None]
    for place, one in enumerate(compared):
        if one.versus_best is not None:
            difference = one.versus_best.difference
            errors = _errors([difference])
            axes.errorbar(
                [difference.mean], [place], xerr=errors, fmt="o", color=colours[one.policy]
            )
            above = (0, 5)  # in points
            axes.annotate(
                one.policy,
                (difference.mean, place),
                above,
                textcoords="offset points",
                ha="center",
                va="bottom",
                annotation_clip=False,
            )
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_yticks([])
    axes.set_ylim(-0.5, len(compared) - 0.25)
    level = f"{100 * comparison.confidence:g} % intervals"
    axes.set_xlabel(f"paired difference to {comparison.best_heuristic}, all cells, {level}")
    axes.grid(axis="x", alpha=0.3)


def _colours(comparison: Comparison) -> dict[str, str]:
    colours: dict[str, str] = {}
    used = {True: 0, False: 0}
    for one in comparison.policies:
        is_heuristic = one.kind == HEURISTIC
        palette = _HEURISTIC_GREYS if is_heuristic else _NETWORK_COLOURS
        colours[one.policy] = palette[used[is_heuristic] % len(palette)]
        used[is_heuristic] += 1
    return colours


def _errors(intervals: list[Interval]) -> list[list[float]]:
    """Return lengths below and above the means; 0 where there is no interval."""
    known = [not math.isnan(one.low) for one in intervals]
    pairs = list(zip(intervals, known, strict=True))
    below = [one.mean - one.low if is_known else 0.0 for one, is_known in pairs]
    above = [one.high - one.mean if is_known else 0.0 for one, is_known in pairs]
    return [below, above]
