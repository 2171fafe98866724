"""Measure the speed on this machine."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sched_env.cli.main import Command
from sched_env.errors import ConfigError

if TYPE_CHECKING:
    from sched_env.cli.speed import Speed

MOST_THINGS = 1_000_000
MOST_SECONDS = 3600
_MOST_SCHED_SIM_REQUESTS = 3_000
_MOST_DECIDED_REQUESTS = 2_000
_NUMBERS = (
    "num_envs",
    "num_shared_envs",
    "num_threads",
    "num_requests",
    "num_plain_requests",
    "repeats",
    "seconds",
)
_SHORT_GROWTH = 100_000
_SHORT_OVERLOAD = ("fcfs", "sjf", "aging", "mlfq")


@dataclass(frozen=True)
class BenchArguments:
    """Measure the speed on this machine: the batched environment, whole traces, plain Python.

    Every figure is the median of --repeats measurements, all taken in turn and on one core but for
    the threads; run it on an idle machine.
    """

    num_envs: int = 64
    """Environments stepped together."""

    num_shared_envs: int = 1_024
    """Environments whose steps threads share; 0 leaves it out."""

    num_threads: int = 2
    """Threads that share them."""

    num_requests: int = 10_000
    """Requests of the trace that is simulated."""

    num_plain_requests: int = 300
    """Requests of the trace that the uncompiled core simulates; 0 leaves it out."""

    repeats: int = 5
    """Measurements of which the median counts."""

    seconds: float = 1.0
    """Time of one measurement, in seconds."""

    full: bool = False
    """Measure overload under every heuristic, the growth to 1,000,000 requests, and a start with an
    empty cache of kernels, too."""

    sched_sim_python: Annotated[str, tyro.conf.arg(metavar="PYTHON")] = ""
    """An interpreter that can import the package sched-sim, to compare with it; by default this
    one, if it can."""

    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Write the figures to this JSON file as well."""


def run(arguments: BenchArguments) -> None:
    """Measure, and print speeds and ratios."""
    _check(arguments)
    from sched_env.cli import speed, start_speed
    from sched_env.evaluation.machine import describe_machine

    how = {"repeats": arguments.repeats, "seconds": arguments.seconds}
    num_envs = arguments.num_envs
    works = [speed.cartpole(), speed.scalar_env(), speed.batched_env(num_envs)]
    works += [speed.batched_env(num_envs, load) for load in speed.LOADS]
    speeds = speed.measure(works, **how)
    ratios = [(f"{one.name} over {speeds[0].name}", one.over(speeds[0])) for one in speeds[1:]]
    if arguments.num_shared_envs > 0:
        numbers = (num_envs, arguments.num_shared_envs, arguments.num_threads)
        more, their_ratios = speed.measure_threads(*numbers, **how)
        speeds, ratios = speeds + more, ratios + their_ratios
    speeds += speed.measure([speed.full_trace(arguments.num_requests)], **how)
    if arguments.num_plain_requests > 0:
        works = [speed.full_trace(arguments.num_plain_requests)]
        (compiled,) = speed.measure(works, **how)
        plain = speed.plain_python(arguments.num_plain_requests)
        speeds += [compiled, plain]
        ratios.append(("compiled core over plain Python", compiled.per_s / plain.per_s))
    for more, their_ratios in (_whole_traces(arguments), _training(how)):
        speeds += more
        ratios += their_ratios
    start = start_speed.start_times(arguments.full)
    machine = describe_machine()
    _print(speeds, ratios, start, machine)
    if arguments.out:
        _write(Path(arguments.out), speeds, ratios, start, machine)


def _print(
    speeds: list[Speed],
    ratios: list[tuple[str, float]],
    start: list[tuple[str, float]],
    machine: dict[str, Any],
) -> None:
    from sched_env.evaluation.table import TextTable, print_tables

    print(f"{machine['processor']}, Python {machine['python']}, numba {_version(machine, 'numba')}")
    rows = tuple(
        (one.name, f"{one.per_s:,.0f}", f"{one.best_per_s:,.0f}", f"{one.unit}/s") for one in speeds
    )
    print_tables(
        [
            TextTable("Speed", ("measurement", "median", "best", "unit"), rows),
            TextTable("Ratios", ("", "times"), tuple((n, f"{r:.2f}") for n, r in ratios)),
            TextTable("Start", ("", "CPU s"), tuple((n, f"{s:.1f}") for n, s in start)),
        ]
    )


def _whole_traces(arguments: BenchArguments) -> tuple[list[Speed], list[tuple[str, float]]]:
    from sched_env.cli import policy_speed, trace_speed

    count, repeats = arguments.num_requests, arguments.repeats
    speeds = trace_speed.trace_speeds(count, repeats=repeats, seconds=arguments.seconds)
    ratios = _over_sched_sim(arguments, speeds)
    ratios += trace_speed.jump_ahead(count, repeats)
    speeds += policy_speed.policy_speeds(
        min(count, _MOST_DECIDED_REQUESTS),
        arguments.num_envs,
        repeats=repeats,
        seconds=arguments.seconds,
    )
    policies = () if arguments.full else _SHORT_OVERLOAD
    ratios += trace_speed.overload(count, repeats, policies)
    ratios += trace_speed.growth(MOST_THINGS if arguments.full else _SHORT_GROWTH, repeats)
    return speeds, ratios


def _training(how: dict[str, Any]) -> tuple[list[Speed], list[tuple[str, float]]]:
    from sched_env.cli import train_speed

    if not train_speed.can_train():
        print('training not measured: it needs pip install "sched-env[agents]"')
        return [], []
    speed, part = train_speed.train_speed(**how)
    return [speed], [("environments' part of the time of training", part)]


def _over_sched_sim(arguments: BenchArguments, speeds: list[Speed]) -> list[tuple[str, float]]:
    """Compare whole traces with sched-sim on the same requests, if it is there; add its speed."""
    from sched_env.cli import other_speed, trace_speed

    python = arguments.sched_sim_python or (sys.executable if other_speed.has_sched_sim() else "")
    if not python:
        print("not compared with sched-sim: not installed; see --sched-sim-python")
        return []
    table = trace_speed.light_chatbot(min(arguments.num_requests, _MOST_SCHED_SIM_REQUESTS))
    other = other_speed.sched_sim(table, python, min(arguments.repeats, 3))
    ours = speeds[0].per_s
    speeds.append(other)
    return [("whole traces over sched-sim", ours / other.per_s)]


def _version(machine: dict[str, Any], package: str) -> str:
    return machine["packages"].get(package, "?")


def _check(arguments: BenchArguments) -> None:
    """Refuse what cannot be measured or written, before minutes go into measuring."""
    for name in _NUMBERS:
        value, option = getattr(arguments, name), name.replace("_", "-")
        most = MOST_SECONDS if name == "seconds" else MOST_THINGS
        if name in ("num_plain_requests", "num_shared_envs"):
            if not 0 <= value <= most:
                raise ConfigError(f"--{option} {value}: give a number from 0 to {most}")
        elif not 0 < value <= most:
            raise ConfigError(f"--{option} {value}: give a number above 0 and up to {most}")
    if arguments.sched_sim_python:
        from sched_env.cli import other_speed

        other_speed.check_sched_sim(arguments.sched_sim_python)
    if arguments.out:
        path = Path(arguments.out)
        if path.is_dir():
            raise ConfigError(f"--out {path} is a folder: name a file, as in {path / 'bench.json'}")
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise ConfigError(f"--out {path}: its folder is missing or cannot be written to")


def _write(
    path: Path,
    speeds: list[Speed],
    ratios: list[tuple[str, float]],
    start: list[tuple[str, float]],
    machine: dict[str, Any],
) -> None:
    values = {
        "speeds": [asdict(one) for one in speeds],
        "ratios": dict(ratios),
        "start_s": dict(start),
        "machine": machine,
    }
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    print(f"figures: {path}")


COMMAND = Command(BenchArguments, run)
