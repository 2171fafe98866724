"""Bar charts of a comparison, where matplotlib is installed."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

from sched_env.evaluation.compare import HEURISTIC, Comparison, ConditionComparison
from sched_env.evaluation.files import replacing
from sched_env.evaluation.table import format_condition

_HEURISTIC_GREYS = ("0.82", "0.70", "0.58", "0.46", "0.34", "0.22")
_NETWORK_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")


def can_plot() -> bool:
    """Return whether matplotlib is installed; it is not imported."""
    return find_spec("matplotlib") is not None


def plot_comparison(comparison: Comparison, path: Path) -> None:
    """Draw the metric of each policy at each trace and load as bars with intervals over seeds.

    Args:
        comparison: What to draw; heuristics come out grey, learned policies coloured.
        path: PNG file to write, in one piece.
    """
    from matplotlib.figure import Figure

    conditions = list(dict.fromkeys((one.trace, one.load) for one in comparison.conditions))
    found = {(one.policy, one.trace, one.load): one for one in comparison.conditions}
    colours = _colours(comparison)
    width = 0.8 / len(colours)
    figure = Figure(figsize=(max(6.0, 0.35 * len(colours) * len(conditions) + 2), 4), dpi=120)
    axes = figure.subplots()
    for position, (policy, colour) in enumerate(colours.items()):
        own = [found.get((policy, *condition)) for condition in conditions]
        places = [index + (position + 0.5) * width - 0.4 for index in range(len(conditions))]
        heights = [one.mean.mean if one else math.nan for one in own]
        axes.bar(places, heights, width, yerr=_errors(own), color=colour, label=policy)
    axes.set_xticks(range(len(conditions)), [format_condition(*one) for one in conditions])
    axes.set_ylabel(comparison.metric)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=min(4, len(colours)), fontsize="small")
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", bbox_inches="tight")


def _colours(comparison: Comparison) -> dict[str, str]:
    colours: dict[str, str] = {}
    used = {True: 0, False: 0}
    for one in comparison.policies:
        is_heuristic = one.kind == HEURISTIC
        palette = _HEURISTIC_GREYS if is_heuristic else _NETWORK_COLOURS
        colours[one.policy] = palette[used[is_heuristic] % len(palette)]
        used[is_heuristic] += 1
    return colours


def _errors(own: list[ConditionComparison | None]) -> list[list[float]]:
    below, above = [], []
    for one in own:
        known = one is not None and not math.isnan(one.mean.low)
        below.append(one.mean.mean - one.mean.low if known and one else 0.0)
        above.append(one.mean.high - one.mean.mean if known and one else 0.0)
    return [below, above]
