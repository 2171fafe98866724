"""How long requests wait under learned policies and under tuned ones, at equal goodput.

::

    python -m sched_env.evaluation.equal_goodput RESULTS

``RESULTS`` is a folder that ``evaluate --out`` or ``arena --out`` has written, with several tuned
scores that give up different amounts of goodput for shorter waits. Those that another one beats in
both are left out, and between neighbours of the rest goodput and P95 TTFT go over into each other
in a straight line: what can be reached by serving some windows under one and some under the other.
A learned policy is compared with the point of that line at its own goodput.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sched_env.errors import ConfigError, SchedEnvError, UnknownNameError, run_module
from sched_env.evaluation.compare import HEURISTIC, NETWORK, TUNED
from sched_env.evaluation.report import find_results
from sched_env.evaluation.results import read_rows
from sched_env.evaluation.statistics import CONFIDENCE, NUM_RESAMPLES, Interval
from sched_env.evaluation.table import TextTable, format_interval, print_tables
from sched_env.metrics.summary import Row

GOODPUT = "goodput_weighted"
WAIT = "p95_ttft_ms"
_CELL = ("trace", "load", "seed", "kv_pool", "slo")
"""What rows are paired by; the last two stand in those of an arena alone."""

Values = NDArray[np.float64]
Points = Mapping[str, NDArray[np.float64]]
"""By policy, goodput and P95 TTFT of each cell, (num_cells, 2)."""


@dataclass(frozen=True)
class EqualGoodput:
    """A learned policy against the tuned ones at its own goodput.

    Attributes:
        policy: Its name.
        goodput: Its mean weighted goodput.
        wait_ms: Its mean P95 TTFT over the cells.
        tuned_wait_ms: That of the tuned policies at that goodput; NaN where they all have more. If
            they all have less, the one with most is what it is compared with.
        shorter: Part by which its own is shorter, with its paired bootstrap interval, whose limits
            are NaN where the tuned ones all have more in some resample.
    """

    policy: str
    goodput: float
    wait_ms: float
    tuned_wait_ms: float
    shorter: Interval


def compare_at_equal_goodput(rows: Sequence[Row], *, seed: int = 0) -> list[EqualGoodput]:
    """Compare every learned policy, and the mean of several, with the tuned ones at equal goodput.

    The mean is that of what was found for each, such as training seeds of one recipe.

    Cells (trace, load, seed and condition) are resampled for all policies at once, and with them
    the line of the tuned ones; limits are percentiles. A cell in which a policy gave nobody a token
    has no P95 TTFT; like one without goodput it is left out for all.

    Args:
        rows: Rows of one evaluation.
        seed: Seed of the bootstrap.

    Raises:
        UnknownNameError: The rows lack one of the two metrics.
        SchedEnvError: One is no number, no learned policy is among the rows, fewer than two tuned
            ones are, or no cell is shared by all.
    """
    learned, tuned = _points(rows)
    cells = next(iter(learned.values())).shape[0]
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(cells, np.full(cells, 1.0 / cells), NUM_RESAMPLES) / cells
    lines = np.stack([counts @ points for points in tuned.values()], axis=1)
    line = np.array([points.mean(axis=0) for points in tuned.values()])
    found, resampled = [], []
    for name, points in learned.items():
        goodput, wait_ms = points.mean(axis=0).tolist()
        tuned_wait_ms = _wait_at(goodput, line)
        ours = counts @ points
        waits_ms = np.array([_wait_at(own[0], one) for own, one in zip(ours, lines, strict=True)])
        resampled.append(1.0 - ours[:, 1] / waits_ms)
        shorter = _interval(1.0 - wait_ms / tuned_wait_ms, resampled[-1], cells)
        found.append(EqualGoodput(name, goodput, wait_ms, tuned_wait_ms, shorter))
    if len(found) > 1:
        goodput, wait_ms, tuned_wait_ms, mean = np.mean(
            [(one.goodput, one.wait_ms, one.tuned_wait_ms, one.shorter.mean) for one in found],
            axis=0,
        ).tolist()
        shorter = _interval(mean, np.mean(resampled, axis=0), cells)
        name = f"mean of {len(found)} learned"
        found.append(EqualGoodput(name, goodput, wait_ms, tuned_wait_ms, shorter))
    return found


def _interval(mean: float, resampled: Values, num_values: int) -> Interval:
    """Return a mean with the percentiles of its resamples."""
    tail = 100.0 * (1.0 - CONFIDENCE) / 2.0
    low, high = np.percentile(resampled, [tail, 100.0 - tail]).tolist()
    return Interval(mean, low, high, num_values)


def _points(rows: Sequence[Row]) -> tuple[Points, Points]:
    """Return the cells that all policies share, of learned and of tuned policies."""
    cells: dict[str, dict[tuple[object, ...], tuple[float, float]]] = {}
    kinds: dict[str, str] = {}
    for row in rows:
        kind = str(row.get("policy_kind") or HEURISTIC)
        if kind not in (TUNED, NETWORK):
            continue
        name, point = str(row["policy"]), (_number(row, GOODPUT), _number(row, WAIT))
        kinds[name] = kind
        known, cell = cells.setdefault(name, {}), _cell_of(row)
        if cell in known:
            raise SchedEnvError(f"{name} has two rows for {_told(cell)}: evaluate again")
        known[cell] = point
    for known in cells.values():
        for cell in [one for one, point in known.items() if not all(map(math.isfinite, point))]:
            del known[cell]
    if list(kinds.values()).count(TUNED) < 2 or NETWORK not in kinds.values():
        raise SchedEnvError(
            "the results hold no learned policy with two tuned ones to compare it with: "
            "evaluate them together, as in docs/results.md"
        )
    shared = sorted(set.intersection(*(set(one) for one in cells.values())), key=str)
    if not shared:
        raise SchedEnvError("the policies have no cell in common: evaluate them together")
    points = {name: np.array([one[cell] for cell in shared]) for name, one in cells.items()}
    learned = {name: one for name, one in points.items() if kinds[name] == NETWORK}
    return learned, {name: one for name, one in points.items() if kinds[name] == TUNED}


def _cell_of(row: Row) -> tuple[object, ...]:
    """Return what tells a cell from others."""
    cell = tuple(row.get(part) for part in _CELL)
    if not all(isinstance(part, str | int | float | None) for part in cell):
        raise SchedEnvError(f"{row['policy']} has a row for {_told(cell)}: evaluate again")
    return cell


def _told(cell: tuple[object, ...]) -> str:
    """Return a cell in words."""
    parts = zip(_CELL, cell, strict=True)
    return ", ".join(f"{name} {part!r}" for name, part in parts if part is not None)


def _number(row: Row, metric: str) -> float:
    """Return a metric of a row, NaN where it has none."""
    if metric not in row:
        raise UnknownNameError("metric", metric, list(row))
    value = row[metric]
    if not isinstance(value, int | float | None):
        raise SchedEnvError(f"{metric} of {row['policy']} is {value!r}, no number: evaluate again")
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf


def _wait_at(goodput: float, points: Values) -> float:
    """Return the wait at some goodput, given goodput and wait of several policies, (n, 2)."""
    best: list[tuple[float, float]] = []
    for one_goodput, one_wait in sorted(points.tolist(), key=lambda one: (-one[0], one[1])):
        if not best or one_wait < best[-1][1]:
            best.append((one_goodput, one_wait))
    goodputs, waits = np.array(best[::-1]).T
    return float(np.interp(goodput, goodputs, waits, left=math.nan))


def equal_goodput_table(found: Sequence[EqualGoodput]) -> TextTable:
    """Return a line for each learned policy."""
    return TextTable(
        f"P95 TTFT in ms at equal {GOODPUT}",
        ("policy", "goodput", "its own", "tuned", "shorter by [95 %]"),
        tuple(
            (
                one.policy,
                f"{one.goodput:.4f}",
                f"{one.wait_ms:,.0f}",
                "all have more" if math.isnan(one.tuned_wait_ms) else f"{one.tuned_wait_ms:,.0f}",
                _shorter_text(one.shorter),
            )
            for one in found
        ),
    )


def _shorter_text(shorter: Interval) -> str:
    if math.isnan(shorter.mean):
        return "-"
    if math.isnan(shorter.low):
        return f"{shorter.mean:+.4f} [no interval]"
    return format_interval(shorter, signed=True)


def main(arguments: Sequence[str]) -> None:
    """Print the comparison for the folder of an evaluation."""
    if len(arguments) != 1:
        raise ConfigError("give one folder that evaluate --out or arena --out has written")
    rows = read_rows(find_results(Path(arguments[0])))
    print_tables([equal_goodput_table(compare_at_equal_goodput(rows))])


if __name__ == "__main__":
    run_module(main)
