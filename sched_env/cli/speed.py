"""How fast the parts run on this machine, each the best of a few short measurements."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numba
import numpy as np
import numpy.typing as npt

import sched_env  # noqa: F401  (registers the environments)
from sched_env.config import EnvConfig
from sched_env.errors import SchedEnvError
from sched_env.simulator import simulate
from sched_env.workload import synthesize

ENV_ID = "sched_env/ContinuousBatching-v0"
_PLAIN_PYTHON_MEASUREMENT = "from sched_env.cli.speed import print_plain_speed; print_plain_speed()"


@dataclass(frozen=True)
class Speed:
    """One measured speed.

    Attributes:
        name: what was run.
        per_s: how many per second.
        unit: of what.
    """

    name: str
    per_s: float
    unit: str


def best_rate(run: Callable[[], int], *, repeats: int, seconds: float) -> float:
    """Return the best rate per second of processor time of ``run``, which returns how much it did.

    The best of several measurements is the one that other work on the machine disturbed least.
    """
    run()  # compiles what is not compiled yet
    best = 0.0
    for _ in range(repeats):
        done, started_s = 0, time.process_time()
        while (elapsed_s := time.process_time() - started_s) < seconds:
            done += run()
        best = max(best, done / elapsed_s)
    return best


def cartpole(*, repeats: int, seconds: float) -> Speed:
    """Measure the plain ``gym.make`` loop of CartPole-v1."""
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, 1000).tolist()

    def loop() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    rate = best_rate(loop, repeats=repeats, seconds=seconds)
    env.close()
    return Speed("CartPole-v1, gym.make loop", rate, "steps")


def batched_env(num_envs: int, *, repeats: int, seconds: float) -> Speed:
    """Measure the vector environment under random legal actions, observations and masks written.

    The actions are drawn in compiled code and count towards the time. Buffers are used in place
    (``copy=False``), as a native trainer would.
    """
    envs = gym.make_vec(ENV_ID, num_envs=num_envs, copy=False)
    _, infos = envs.reset(seed=0)
    mask = infos["action_mask"]
    actions = np.zeros(num_envs, np.int64)
    draws = np.random.default_rng(0).random((1000, num_envs))

    def loop() -> int:
        nonlocal mask
        for draw in draws:
            _draw_legal(mask, draw, actions)
            _, _, _, _, infos = envs.step(actions)
            mask = infos["action_mask"]
        return draws.size

    rate = best_rate(loop, repeats=repeats, seconds=seconds)
    envs.close()
    return Speed(f"ContinuousBatching-v0, {num_envs} envs batched", rate, "steps")


@numba.njit
def _draw_legal(
    masks: npt.NDArray[np.int8], draws: npt.NDArray[np.float64], actions: npt.NDArray[np.int64]
) -> None:
    """Fill ``actions`` (n,) with one of each row's legal ones, by ``draws`` (n,) in [0, 1)."""
    for row in range(len(actions)):
        left = int(draws[row] * masks[row].sum())
        for action in range(masks.shape[1]):
            left -= masks[row, action]
            if left < 0:
                actions[row] = action
                break


def full_trace(num_requests: int, *, repeats: int, seconds: float) -> Speed:
    """Measure a whole trace under fcfs, from the request table to the result."""
    table = synthesize("azure_conv", num_requests=num_requests, seed=0)
    config = EnvConfig()

    def once() -> int:
        simulate(table, "fcfs", config)
        return num_requests

    rate = best_rate(once, repeats=repeats, seconds=seconds)
    return Speed(f"azure_conv, {num_requests:,} requests, fcfs", rate, "requests")


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
    return Speed(name, float(done.stdout), "requests")


def print_plain_speed() -> None:
    """Print the requests per second of one uncompiled run; the process was started for it."""
    table = synthesize("azure_conv", num_requests=int(sys.argv[1]), seed=0)
    started_s = time.process_time()
    simulate(table, "fcfs", EnvConfig())
    print(len(table) / (time.process_time() - started_s))
