"""The regime map as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sched_env.evaluation.arena.regimes import Regime
from sched_env.evaluation.files import replacing

_ALIKE = "0.9"


def plot_regimes(found: Sequence[Regime], path: Path, *, tie_within: float) -> None:
    """Draw one coloured field for each condition and load, by the winner.

    Args:
        found: The map.
        path: PNG file to write, in one piece.
        tie_within: Fields whose policies all lie within this are grey.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    loads = sorted({one.load for one in found})
    conditions = list(dict.fromkeys((one.kv_pool, one.slo) for one in found))
    winners = sorted({one.best for one in found if one.spread >= tie_within})
    palette = colormaps["tab20"].colors  # pyright: ignore[reportAttributeAccessIssue]
    colours = {name: palette[(2 * i + 1) % len(palette)] for i, name in enumerate(winners)}
    size = (2.0 + 1.7 * len(loads), 1.0 + 0.8 * len(conditions))
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    axes = figure.subplots()
    for one in found:
        place = loads.index(one.load), conditions.index((one.kv_pool, one.slo))
        is_alike = one.spread < tie_within
        colour = _ALIKE if is_alike else colours[one.best]
        axes.add_patch(Rectangle(place, 1, 1, facecolor=colour, edgecolor="white"))
        text = "all alike" if is_alike else one.best.replace("_", "_\n", 1)
        axes.text(
            place[0] + 0.5,
            place[1] + 0.5,
            f"{text}\n{one.goodput_weighted:.3f}",
            ha="center",
            va="center",
            fontsize=7,
        )
    axes.set_xlim(0, len(loads))
    axes.set_ylim(len(conditions), 0)
    axes.set_xticks([i + 0.5 for i in range(len(loads))], [f"load {load:g}" for load in loads])
    names = [f"{pool} KV\n{slo} SLO" for pool, slo in conditions]
    axes.set_yticks([i + 0.5 for i in range(len(conditions))], names)
    axes.tick_params(length=0)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
