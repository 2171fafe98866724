"""How fast the compiled step is beside the same step written in C, which does the same to the bit.

    python benchmarks/c_core_speed.py [--num-envs 4,64] [--repeats 40] [--seconds 0.05] [--out FILE]

First both step equal servers under the same actions, some of them illegal, and all memory is
compared, for each load; where anything differs it is named and the exit code is 1. Then both are
measured by turns: processor time of the compiled calls, random legal actions drawn within it. A
speed is the median of the rounds, a ratio the median of the ratios within a round. Needs a C
compiler (``cc``, or what ``CC`` names).
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from c_core import library
from c_core.comparison import DifferenceError, Lockstep
from c_core.driver import Driver
from sched_env.cli.main import Command, run_script
from sched_env.cli.speed import LOADS, Load, make_envs
from sched_env.engine.world import World
from sched_env.env.state import check_number
from sched_env.errors import ConfigError
from sched_env.evaluation.files import write_json
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


@dataclass(frozen=True)
class Arguments:
    """Compare the compiled step with the same step in C, and measure both."""

    num_envs: str = "4,64"
    """Servers stepped by a call, one measurement each."""

    repeats: int = 40
    """Rounds of a measurement."""

    seconds: float = 0.05
    """Processor time of each core in a round."""

    compared: int = 60_000
    """Decisions for each load over which the two are compared."""

    out: str = ""
    """JSON file that the figures are written to as well."""

    def counts(self) -> list[int]:
        """Return ``num_envs`` as numbers, once every argument is known to be possible.

        Raises:
            ConfigError: One is not.
        """
        check_number("--repeats", self.repeats)
        check_number("--compared", self.compared)
        if not 0.001 <= self.seconds <= 3600:
            raise ConfigError(f"--seconds {self.seconds:g}: give a number from 0.001 to 3600")
        if self.out and (Path(self.out).is_dir() or not Path(self.out).resolve().parent.is_dir()):
            raise ConfigError(f"--out {self.out}: name a file in a folder that exists")
        texts = self.num_envs.split(",")
        if not all(text.isdecimal() for text in texts):
            raise ConfigError(f"--num-envs {self.num_envs!r}: give whole numbers, as in 4,64")
        for text in texts:
            check_number("--num-envs", int(text))
        return [int(text) for text in texts]


def main(arguments: Arguments) -> int:
    """Compare, measure, print."""
    counts = arguments.counts()
    library.core()  # says at once where it cannot be built
    try:
        for load in (None, *LOADS):
            compare(load, arguments.compared)
    except DifferenceError as error:
        print(f"the two cores differ: {error}", file=sys.stderr)
        return 1
    rows = [
        measure(load, num_envs, arguments.repeats, arguments.seconds)
        for num_envs in counts
        for load in (None, *LOADS)
    ]
    print(table(rows))
    if arguments.out:
        values = {"machine": describe_machine(), "rows": [row._asdict() for row in rows]}
        write_json(Path(arguments.out), values)
    return 0


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
    sys.exit(run_script(Command(Arguments, main), Path(__file__).name))
