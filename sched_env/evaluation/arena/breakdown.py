"""Where learned policies gain on what was tuned: the paired difference by each condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sched_env.evaluation.compare import NETWORK, TUNED
from sched_env.evaluation.statistics import paired_difference
from sched_env.evaluation.table import TextTable, format_interval, format_number
from sched_env.metrics.summary import Row

_DIMENSIONS = {"trace": "trace", "load": "load", "kv_pool": "KV pool", "slo": "SLO"}

Scores = dict[str, dict[tuple[object, ...], float]]


def breakdown_tables(rows: Sequence[Row], *, seed: int = 0) -> list[TextTable]:
    """Return a table for each tuned policy; none where nothing was tuned or learned.

    A line is the part of the cells with one trace, load, KV pool or SLO tightness. Its difference
    pairs the mean over the learned policies, such as several training seeds, with the tuned policy
    cell by cell; the worst and the best of them stand beside it.

    Args:
        rows: Rows of an arena.
        seed: Seed of the bootstrap.
    """
    scores, learned, tuned = _scores(rows)
    if not learned or not tuned:
        return []
    cells = sorted(set.intersection(*(set(one) for one in scores.values())), key=str)
    return [_table(scores, learned, opponent, cells, seed) for opponent in tuned]


def _scores(rows: Sequence[Row]) -> tuple[Scores, list[str], list[str]]:
    """Return goodput by policy and cell, and the names of learned and of tuned policies."""
    scores: Scores = {}
    kinds: dict[str, str] = {}
    for row in rows:
        kind = str(row["policy_kind"])
        if kind in (NETWORK, TUNED):
            cell = (*(row[name] for name in _DIMENSIONS), row["seed"])
            scores.setdefault(str(row["policy"]), {})[cell] = float(row["goodput_weighted"])
            kinds[str(row["policy"])] = kind
    learned = [name for name, kind in kinds.items() if kind == NETWORK]
    return scores, learned, [name for name in kinds if name not in learned]


def _table(
    scores: Scores,
    learned: Sequence[str],
    opponent: str,
    cells: Sequence[tuple[object, ...]],
    seed: int,
) -> TextTable:
    parts: list[tuple[str, list[tuple[object, ...]]]] = [("all", list(cells))]
    for index, name in enumerate(_DIMENSIONS.values()):
        values = dict.fromkeys(sorted((cell[index] for cell in cells), key=_order))
        parts += [(f"{name} {v}", [cell for cell in cells if cell[index] == v]) for v in values]
    lines = [_line(label, scores, learned, opponent, part, seed) for label, part in parts]
    several = f"mean of {len(learned)} learned" if len(learned) > 1 else learned[0]
    return TextTable(
        f"goodput_weighted: learned against {opponent}, by condition",
        ("cells", opponent, several, "difference [95 %]", "worst", "best"),
        tuple(lines),
    )


def _order(value: object) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, str(value)


def _line(
    label: str,
    scores: Scores,
    learned: Sequence[str],
    opponent: str,
    cells: Sequence[tuple[object, ...]],
    seed: int,
) -> tuple[str, ...]:
    theirs = np.array([scores[opponent][cell] for cell in cells])
    ours = np.array([[scores[name][cell] for cell in cells] for name in learned])
    differences = (ours - theirs).mean(axis=1)
    return (
        label,
        format_number(float(theirs.mean())),
        format_number(float(ours.mean())),
        format_interval(paired_difference(ours.mean(axis=0), theirs, seed=seed), signed=True),
        f"{differences.min():+.4f}",
        f"{differences.max():+.4f}",
    )
