"""How fast an agent is trained, and how little of that time its environments take."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from sched_env.cli.speed import Speed, Work, measure
from sched_env.config import ExperimentConfig, load_config

_NUM_WAITING_SLOTS = 24
_EXPERIMENT = (
    "experiment/azure_conv",
    [
        f"env.observation.num_waiting_slots={_NUM_WAITING_SLOTS}",
        "agent.extends=agent/from_scratch",
        "agent.num_envs=64",
        "agent.num_steps=64",
        "agent.num_threads=1",
    ],
)


def can_train() -> bool:
    """Tell whether the extra ``agents`` is installed."""
    return find_spec("torch") is not None and find_spec("sb3_contrib") is not None


def train_speed(*, repeats: int, seconds: float) -> tuple[Speed, float]:
    """Measure updates of MaskablePPO with a pointer policy, rollouts and all, on one thread.

    Returns:
        Decisions per second, and the part of the time that went into the environments and the
        adapter to stable-baselines3: stepping, observations, and the masks it is asked for.
    """
    from sched_env.agents.model import make_model
    from sched_env.agents.sb3 import make_sb3_vec_env

    experiment = load_config(ExperimentConfig, *_EXPERIMENT)
    num_envs, num_steps = experiment.agent.num_envs, experiment.agent.num_steps
    env = make_sb3_vec_env(experiment.env, num_envs, seed=0, normalise_returns=True)
    model = make_model(experiment, env)
    spent_s = {"stepping": 0.0, "all": 0.0}

    def timed(method: Callable[..., Any]) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            started_s = time.process_time()
            result = method(*args, **kwargs)
            spent_s["stepping"] += time.process_time() - started_s
            return result

        return call

    env.step_async, env.step_wait = timed(env.step_async), timed(env.step_wait)
    env.env_method = timed(env.env_method)

    def update() -> int:
        started_s = time.process_time()
        model.learn(num_envs * num_steps, reset_num_timesteps=False)
        spent_s["all"] += time.process_time() - started_s
        return num_envs * num_steps

    name = f"MaskablePPO, pointer network, {_NUM_WAITING_SLOTS} waiting slots, {num_envs} envs"
    try:
        update()  # compiles, which is no part of the stepping
        spent_s.update(stepping=0.0, all=0.0)
        (speed,) = measure([Work(name, "decisions", update)], repeats=repeats, seconds=seconds)
    finally:
        env.close()
    return speed, spent_s["stepping"] / spent_s["all"]
