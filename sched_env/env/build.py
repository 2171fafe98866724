"""From what a user passes as ``config`` to the compiled world of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import sched_env.baselines  # noqa: F401  (registers the heuristics that screen waiting requests)
from sched_env.config import ConfigModel, EnvConfig, ExperimentConfig, load_config
from sched_env.config.cost import LiveCost
from sched_env.engine.crew import Crew
from sched_env.engine.live import attach
from sched_env.engine.setup import episode_world
from sched_env.engine.world import World
from sched_env.errors import ConfigError
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.simulator.live import check_live, make_executor, with_estimate
from sched_env.simulator.simulate import check_capacity, fcfs_capacity_rps
from sched_env.workload import RequestTable, read_env_trace

ConfigLike = str | Path | Mapping[str, Any] | EnvConfig | ExperimentConfig | None
"""A name or path of YAML, a mapping, a model, or nothing for the standard server."""


def env_config(config: ConfigLike) -> EnvConfig:
    """Return the environment's configuration.

    Raises:
        ConfigError: A key or value is wrong.
    """
    if config is None:
        return EnvConfig()
    if isinstance(config, ExperimentConfig):
        return config.env
    if isinstance(config, EnvConfig):
        return config
    if isinstance(config, Mapping):
        return EnvConfig.from_mapping(config)
    if not isinstance(config, str | Path):
        raise ConfigError(f"config is {config!r}: give a name, a path, a mapping or an EnvConfig")
    kind = Path(str(config)).parts[:1]
    model: type[ConfigModel] = ExperimentConfig if kind == ("experiment",) else EnvConfig
    return env_config(cast("EnvConfig | ExperimentConfig", load_config(model, str(config))))


def read_tables(config: EnvConfig) -> list[RequestTable]:
    """Read the traces of an environment and cut them to its split."""
    return [read_env_trace(config, name).split(config.split) for name in config.trace]


def build_world(config: EnvConfig, num_envs: int, num_threads: int = 1) -> World:
    """Return the world of ``num_envs`` environments, stepped by so many threads, or one for each.

    Raises:
        ConfigError: A live server is one of several, or its device is not there.
        TraceError: A trace cannot be read.
    """
    check_live(config, num_envs)
    executor = None
    if isinstance(config.cost, LiveCost):
        executor = make_executor(config.cost, config.scheduler)
        config = with_estimate(config, executor)
    tables = read_tables(config)
    if config.episode.load is None:
        capacities: list[float | None] = [None] * len(tables)
    else:
        capacities = [_capacity_rps(table, config) for table in tables]
    screen = cast("Heuristic", resolve_policy(config.observation.screen))
    world = episode_world(config, tables, capacities, screen, num_envs)
    num_threads = min(num_threads, num_envs)
    world.crew = Crew(num_threads) if num_threads > 1 else None
    if executor is not None:
        attach(world, executor)
    return world


def _capacity_rps(table: RequestTable, config: EnvConfig) -> float:
    capacity_rps = fcfs_capacity_rps(table, config)
    check_capacity(table, capacity_rps)
    return capacity_rps


def shortest_span_s(world: World) -> float:
    """Return the recorded seconds that the shortest trace of a world spans."""
    segments = world.arrays.segments
    return float((segments["end_s"] - segments["start_s"]).min())


def with_warmup(world: World, config: EnvConfig, warmup_s: float) -> World:
    """Return a world for episodes with up to another warm-up: the longer, the more arrive in one.

    Seeds and numbers of episodes are those of ``world``; what goes on in it is not taken over.
    """
    episode = config.episode.replace(warmup_s=warmup_s)
    config = config.replace(episode=episode)
    other = build_world(config, world.num_servers)
    other.crew = world.crew
    for name in ("env_seed", "episode"):
        other.state[name] = world.state[name]
    return other
