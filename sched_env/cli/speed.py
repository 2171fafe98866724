"""How fast the parts run on this machine.

Whatever is compared is measured in turn, round after round, so that what else the machine does
disturbs all alike. A speed is the median over the rounds, a ratio the median of the ratios within
a round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numba
import numpy as np
import numpy.typing as npt

import sched_env  # noqa: F401  (registers the environments)
from sched_env.config import EnvConfig
from sched_env.errors import SchedEnvError
from sched_env.registration import CONTINUOUS_BATCHING
from sched_env.simulator import simulate
from sched_env.workload import synthesize
from sched_env.workload.convert import write_trace

_PLAIN_PYTHON_MEASUREMENT = "from sched_env.cli.speed import print_plain_speed; print_plain_speed()"


class Load(NamedTuple):
    """Traffic on a server: chatbot requests per second and KV blocks of 16 tokens."""

    name: str
    rate_rps: float
    num_blocks: int


LOADS = (Load("busy", 24.0, 600), Load("KV-tight", 40.0, 300), Load("idle", 2.0, 600))


class Work(NamedTuple):
    """Something to measure: ``run`` does some of it and returns how much."""

    name: str
    unit: str
    run: Callable[[], int]


@dataclass(frozen=True)
class Speed:
    """One measured speed.

    Attributes:
        name: what was run.
        unit: what is counted.
        per_s: how many per second of processor time, the median of the rounds.
        best_per_s: in the best round.
        rounds_per_s: in each round.
    """

    name: str
    unit: str
    per_s: float
    best_per_s: float
    rounds_per_s: tuple[float, ...]

    def over(self, other: Speed) -> float:
        """Return how many times as fast as ``other`` it is, the median over the rounds."""
        pairs = zip(self.rounds_per_s, other.rounds_per_s, strict=True)
        return statistics.median(one / two for one, two in pairs)


def measure(
    works: Sequence[Work],
    *,
    repeats: int,
    seconds: float,
    clock: Callable[[], float] = time.process_time,
) -> list[Speed]:
    """Measure each work for ``seconds`` of a clock, all of them in turn, ``repeats`` times."""
    for work in works:
        work.run()  # compiles what is not compiled yet
    rounds = [[_rate(work.run, seconds, clock) for work in works] for _ in range(repeats)]
    return [
        Speed(work.name, work.unit, statistics.median(rates), max(rates), rates)
        for work, rates in zip(works, zip(*rounds, strict=True), strict=True)
    ]


def measure_threads(
    num_envs: int, num_shared: int, num_threads: int, *, repeats: int, seconds: float
) -> tuple[list[Speed], list[tuple[str, float]]]:
    """Measure many environments with one thread and with more, beside few of them.

    By the clock on the wall, for processor time adds up over threads. All under the busy load.
    """
    numbers = ((num_envs, 1), (num_shared, 1), (num_shared, num_threads))
    works = [batched_env(envs, LOADS[0], threads) for envs, threads in numbers]
    clock = time.perf_counter
    few, alone, shared = measure(works, repeats=repeats, seconds=seconds, clock=clock)
    ratios = [(f"{alone.name} over {num_envs} envs", alone.over(few))]
    ratios += [(f"{shared.name} over one thread", shared.over(alone))]
    return [alone, shared], ratios


def _rate(run: Callable[[], int], seconds: float, clock: Callable[[], float]) -> float:
    done, started_s = 0, clock()
    while (elapsed_s := clock() - started_s) < seconds:
        done += run()
    return done / elapsed_s


def cartpole() -> Work:
    """Return the plain ``gym.make`` loop of CartPole-v1."""
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, 1000).tolist()

    def loop() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return Work("CartPole-v1, gym.make loop", "steps", loop)


def scalar_env() -> Work:
    """Return the ``gym.make`` loop of one standard server under random legal actions."""
    env = gym.make(CONTINUOUS_BATCHING)
    _, info = env.reset(seed=0)
    places = np.random.default_rng(0).integers(0, len(info["action_mask"]), 1000).tolist()

    def loop() -> int:
        nonlocal info
        for place in places:  # the next legal action from there on, or else the first
            legal = info["action_mask"].tobytes()
            action = legal.find(1, place)
            _, _, terminated, truncated, info = env.step(action if action >= 0 else legal.find(1))
            if terminated or truncated:
                _, info = env.reset()
        return len(places)

    return Work("ContinuousBatching-v0, gym.make loop", "steps", loop)


def batched_env(num_envs: int, load: Load | None = None, num_threads: int = 1) -> Work:
    """Return a vector environment under random legal actions, observations and masks written.

    The actions are drawn in compiled code and count towards the time. Buffers are used in place
    (``copy=False``), as a native trainer would.

    Args:
        num_envs: Servers.
        load: Traffic and size of each; the standard server of the comparisons if there is none.
        num_threads: Threads that share the servers.
    """
    envs = make_envs(num_envs, load, num_threads)
    _, infos = envs.reset(seed=0)
    mask = infos["action_mask"]
    actions = np.zeros(num_envs, np.int64)
    draws = np.random.default_rng(0).random((max(64_000 // num_envs, 1), num_envs))

    def loop() -> int:
        nonlocal mask
        for draw in draws:
            draw_legal(mask, draw, actions)
            _, _, _, _, infos = envs.step(actions)
            mask = infos["action_mask"]
        return draws.size

    name = "standard server" if load is None else load.name
    name = f"{num_envs:,} envs, {name}"
    name += f", {num_threads} threads" if num_threads > 1 else ""
    return Work(f"ContinuousBatching-v0, {name}", "steps", loop)


def make_envs(num_envs: int, load: Load | None, num_threads: int = 1) -> gym.vector.VectorEnv:
    """Return environments under a load (or the standard server) that write into their buffers."""
    if load is None:
        return gym.make_vec(
            CONTINUOUS_BATCHING, num_envs=num_envs, copy=False, num_threads=num_threads
        )
    with tempfile.TemporaryDirectory() as folder:
        table = synthesize("chatbot", duration_s=600.0, rate_rps=load.rate_rps, seed=0)
        trace = write_trace(table, Path(folder) / f"{load.name}.parquet")
        config = {
            "trace": str(trace),
            "split": "all",
            "scheduler": {"num_blocks": load.num_blocks},
            "episode": {"load": None},
        }
        return gym.make_vec(
            CONTINUOUS_BATCHING,
            num_envs=num_envs,
            config=config,
            copy=False,
            num_threads=num_threads,
        )


@numba.njit
def draw_legal(
    masks: npt.NDArray[np.int8], draws: npt.NDArray[np.float64], actions: npt.NDArray[np.int64]
) -> None:
    """Fill ``actions`` (n,) with one of each row's legal ones, by ``draws`` (n,) in [0, 1)."""
    legal = np.empty(masks.shape[1], np.int64)
    for row in range(len(actions)):
        count = 0
        for place in range(masks.shape[1]):  # to the end: no branch that cannot be foreseen
            legal[count] = place
            count += masks[row, place]
        actions[row] = legal[int(draws[row] * count)]


def full_trace(num_requests: int) -> Work:
    """Return a whole trace under fcfs, from the request table to the result."""
    table = synthesize("azure_conv", num_requests=num_requests, seed=0)
    config = EnvConfig()

    def once() -> int:
        simulate(table, "fcfs", config)
        return num_requests

    return Work(f"azure_conv, {num_requests:,} requests, fcfs", "requests", once)


def plain_python(num_requests: int) -> Speed:
    """Measure the same core uncompiled, in a process of its own.

    Raises:
        SchedEnvError: that process failed.
    """
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", _PLAIN_PYTHON_MEASUREMENT, str(num_requests)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise SchedEnvError(f"the plain Python run failed: {reason[0]}")
    name = f"azure_conv, {num_requests:,} requests, fcfs, plain Python"
    rate = float(done.stdout)
    return Speed(name, "requests", rate, rate, (rate,))


def print_plain_speed() -> None:
    """Print the requests per second of one uncompiled run; the process was started for it."""
    table = synthesize("azure_conv", num_requests=int(sys.argv[1]), seed=0)
    started_s = time.process_time()
    simulate(table, "fcfs", EnvConfig())
    print(len(table) / (time.process_time() - started_s))
