"""Run a small simulation and a small rollout, and print their bytes as a hash and as numbers.

``python -m tests.engine.small_run`` is started by tests in processes of their own.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from sched_env import EnvConfig, RequestTable, simulate
from tests.env.made_worlds import Driver, make_world


def small_table() -> RequestTable:
    rng = np.random.default_rng(8)
    return RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 3, 40)) - 0.0,
        prompt_tokens=rng.integers(5, 400, 40),
        output_tokens=rng.integers(1, 40, 40),
    )


def small_env() -> EnvConfig:
    env = EnvConfig()
    return env.replace(
        scheduler=env.scheduler.replace(num_blocks=80, max_num_seqs=8, max_num_batched_tokens=256),
        observation=env.observation.replace(num_waiting_slots=4, num_running_slots=2),
        reward=env.reward.replace(waiting=0.1, recompute=0.1),
        episode=env.episode.replace(load=None),
    )


def fingerprints(num_decisions: int = 150) -> dict[str, str]:
    """Return a hash of each array that the two runs produce."""
    prints: dict[str, str] = {}

    def add(name: str, array: np.ndarray) -> None:
        prints[name] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]

    for policy in ("fcfs", "aging"):
        result = simulate(small_table(), policy, small_env(), seed=5, record_events=True)
        assert result.events is not None
        for records, label in ((result.requests, "requests"), (result.events, "events")):
            for name in records.dtype.names:
                add(f"{policy} {label} {name}", records[name])
        add(f"{policy} itl", result.itl_counts)
    driver = Driver(make_world(small_env(), small_table()))
    driver.reset(3)
    rng = np.random.default_rng(0)
    seen, rewards = [driver.observations.copy()], []
    for _ in range(num_decisions):
        reward, is_over, *_ = driver.step(int(rng.choice(np.flatnonzero(driver.mask))))
        rewards.append(reward)
        seen.append(driver.observations.copy())
        if is_over:
            break
    add("rollout observations", np.array(seen))
    add("rollout rewards", np.array(rewards))
    add("rollout clock", driver.world.state["clock_s"])
    return prints


if __name__ == "__main__":
    for name, value in fingerprints().items():
        sys.stdout.write(f"{name}: {value}\n")
