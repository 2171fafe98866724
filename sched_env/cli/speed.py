"""How fast the parts run on this machine, each the best of a few short measurements."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

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
    """Measure the vector environment under random legal actions."""
    envs = gym.make_vec(ENV_ID, num_envs=num_envs)
    _, infos = envs.reset(seed=0)
    mask = infos["action_mask"]
    noise = np.random.default_rng(0).random((64, *mask.shape)) + 0.5

    def loop() -> int:
        nonlocal mask
        for draw in noise:
            _, _, _, _, infos = envs.step((draw * mask).argmax(axis=1))
            mask = infos["action_mask"]
        return len(noise) * num_envs

    rate = best_rate(loop, repeats=repeats, seconds=seconds)
    envs.close()
    return Speed(f"ContinuousBatching-v0, {num_envs} envs batched", rate, "steps")


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
