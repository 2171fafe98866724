"""How fast the compiled step is beside the same step written in C, which does the same to the bit.

    python benchmarks/c_core_speed.py [--num-envs 4 64] [--repeats 40] [--seconds 0.05] [--out FILE]

First both step equal servers under the same actions, some of them illegal, and all memory is
compared, for each load; where anything differs it is named and the exit code is 1. Then both are
measured by turns: processor time of the compiled calls, random legal actions drawn within it. A
speed is the median of the rounds, a ratio the median of the ratios within a round. Needs a C
compiler (``cc``, or what ``CC`` names).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from c_core import library
from c_core.comparison import DifferenceError, Lockstep
from c_core.driver import Driver
from sched_env.cli.speed import LOADS, Load, make_envs
from sched_env.engine.world import World
from sched_env.errors import SchedEnvError
from sched_env.evaluation.machine import describe_machine

_SOME_STEPS = 64
_COMPARED_HORIZON_S = 15.0  # so short that episodes of all loads end


class Row(NamedTuple):
    """Both speeds under one load.

    Attributes:
        load: Its name.
        num_envs: Servers stepped by a call.
        numba_per_s: Decisions per second of processor time, the median of the rounds.
        c_per_s: The same of the C core.
        ratio: The first over the second, the median over the rounds.
    """

    load: str
    num_envs: int
    numba_per_s: float
    c_per_s: float
    ratio: float


def main() -> None:
    """Compare, measure, print."""
    given = _arguments()
    try:
        library.core()  # says at once where it cannot be built
        for load in (None, *LOADS):
            compare(load, given.compared)
        rows = [
            measure(load, num_envs, given.repeats, given.seconds)
            for num_envs in given.num_envs
            for load in (None, *LOADS)
        ]
    except DifferenceError as error:
        print(f"the two cores differ: {error}", file=sys.stderr)
        sys.exit(1)
    except SchedEnvError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(table(rows))
    if given.out:
        values = {"machine": describe_machine(), "rows": [row._asdict() for row in rows]}
        given.out.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--num-envs", type=_count, nargs="+", default=[4, 64])
    parser.add_argument("--repeats", type=_count, default=40, help="rounds of a measurement")
    parser.add_argument("--seconds", type=_seconds, default=0.05, help="of each core in a round")
    parser.add_argument("--compared", type=_count, default=60_000, help="decisions for each load")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file as well")
    given = parser.parse_args()
    if given.out and (given.out.is_dir() or not given.out.resolve().parent.is_dir()):
        parser.error(f"--out {given.out}: name a file in a folder that exists")
    return given


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.001 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0.001 to 3600")
    return value


def make_world(num_envs: int, load: Load | None) -> World:
    """Return the servers of an environment under a load, or the standard server."""
    envs: Any = make_envs(num_envs, load).unwrapped
    envs.reset(seed=0)
    return envs.world


def compare(load: Load | None, num_decisions: int) -> None:
    """Step four servers with both cores and compare them to the last bit; print how many ended.

    Raises:
        DifferenceError: Something differs.
        ConfigError: There is no C compiler.
    """
    num_envs = 4
    worlds = make_world(num_envs, load), make_world(num_envs, load)
    for world in worlds:
        world.state["horizon_s"] = _COMPARED_HORIZON_S
    pair = Lockstep(*worlds)
    pair.run(max(num_decisions // num_envs, 1))
    print(
        f"{_name(load)}: equal over {num_decisions:,} decisions, "
        f"{pair.num_ended} ends of episodes among them"
    )


def measure(load: Load | None, num_envs: int, repeats: int, seconds: float) -> Row:
    """Measure both cores by turns, ``repeats`` times for ``seconds`` of processor time each."""
    numba_core, c_core = (Driver(make_world(num_envs, load), is_c=is_c) for is_c in (False, True))
    for driver in (numba_core, c_core):
        driver.run(_SOME_STEPS)  # compiles what is not compiled yet
    num_steps = max(int(seconds * _SOME_STEPS / numba_core.run(_SOME_STEPS)), 1)
    c_core.run(_SOME_STEPS)
    rounds = []
    for number in range(repeats):
        if number % 2:
            c_s, numba_s = c_core.run(num_steps), numba_core.run(num_steps)
        else:
            numba_s, c_s = numba_core.run(num_steps), c_core.run(num_steps)
        rounds.append((numba_s, c_s))
    count = num_steps * num_envs
    return Row(
        _name(load),
        num_envs,
        count / statistics.median(numba_s for numba_s, _ in rounds),
        count / statistics.median(c_s for _, c_s in rounds),
        statistics.median(c_s / numba_s for numba_s, c_s in rounds),
    )


def _name(load: Load | None) -> str:
    return "standard server" if load is None else load.name


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| load | environments | numba, decisions/s | C, decisions/s | numba over C |"]
    lines.append("|---|---|---|---|---|")
    lines += [
        f"| {row.load} | {row.num_envs} | {row.numba_per_s:,.0f} | {row.c_per_s:,.0f} "
        f"| {row.ratio:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
