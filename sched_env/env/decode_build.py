"""From what a user passes as ``config`` to the machines of the teaching environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config import DecodeSchedulingConfig, load_config
from sched_env.engine.decode_machine import DECODE_REQUEST, FIXED_PRIORITY
from sched_env.engine.decode_records import RANGES
from sched_env.engine.decode_world import DecodeWorld
from sched_env.env.episode_info import SUCCESS_GOODPUT
from sched_env.errors import ConfigError
from sched_env.metrics.fairness import jain_index

DecodeConfigLike = str | Path | Mapping[str, Any] | DecodeSchedulingConfig | None
"""A name or path of YAML, a mapping, a model, or nothing for the standard machine."""


def decode_config(config: DecodeConfigLike) -> DecodeSchedulingConfig:
    """Return the environment's configuration.

    Raises:
        ConfigError: A key or value is wrong.
    """
    if config is None:
        return DecodeSchedulingConfig()
    if isinstance(config, DecodeSchedulingConfig):
        return config
    if isinstance(config, Mapping):
        return DecodeSchedulingConfig.from_mapping(config)
    if not isinstance(config, str | Path):
        raise ConfigError(
            f"config is {config!r}: give a name, a path, a mapping or a DecodeSchedulingConfig"
        )
    return load_config(DecodeSchedulingConfig, config)


def build_decode_world(config: DecodeSchedulingConfig, num_envs: int) -> DecodeWorld:
    """Return the machines of ``num_envs`` environments."""
    workload = config.workload
    settings: dict[str, float] = {
        "policy": FIXED_PRIORITY,
        "aging_interval": config.aging_interval,
        "kv_blocks": config.free_kv_blocks,
        "num_slots": config.num_slots,
        "cache_hit_share": workload.cache_hit,
        "preemptible_share": workload.preemptible,
        "deadline_share": workload.deadline,
        "deadline_factor_low": workload.deadline_factor[0],
        "deadline_factor_high": workload.deadline_factor[1],
        "discount": config.episode.discount,
    }
    for name in RANGES:
        settings[f"{name}_low"], settings[f"{name}_high"] = getattr(workload, name)
    for name, weight in config.reward.to_dict().items():
        settings[f"reward_{name}"] = weight
    return DecodeWorld(num_envs, settings, given_instance(config))


def given_instance(config: DecodeSchedulingConfig) -> NDArray[Any]:
    """Return the configured requests in order of arrival, DECODE_REQUEST; empty: none given."""
    given = sorted(config.requests or (), key=lambda one: one.arrival_step)
    rows = np.zeros(len(given), DECODE_REQUEST)
    for row, request in zip(rows, given, strict=True):
        values = request.to_dict()
        deadline_step = values.pop("deadline_step")
        row["has_deadline"] = deadline_step is not None
        row["deadline_step"] = deadline_step or 0
        for name, value in values.items():
            row[name] = value
    return rows


def decode_episode_info(world: DecodeWorld, index: int) -> dict[str, Any]:
    """Return the metrics of the episode that machine ``index`` has just ended.

    Steps stand in for seconds in names: ``mean_wait_steps`` is the mean number of steps that
    others got while a request was there, by which all of it was late.
    """
    state, requests = world.state[index], world.requests(index)
    wait = requests["wait_steps"].astype(np.float64)
    lone = 1.0 + requests["max_new_tokens"]
    injected = len(requests)
    goodput_weighted = float(state["weight_met"] / state["total_weight"])
    done = requests["generated_len"] >= requests["max_new_tokens"]
    return {
        "num_injected": injected,
        "num_finished": int(done.sum()),
        "num_preemptions": int(state["num_preemptions"]),
        "num_decisions": int(state["decisions"]),
        "goodput_weighted": goodput_weighted,
        "slo_attainment": int(state["num_met"]) / injected,
        "mean_wait_steps": float(wait.mean()),
        "max_wait_steps": int(wait.max()),
        "mean_e2el_steps": float((wait + lone).mean()),
        "makespan_steps": int(state["clock"]),
        "jain_fairness": jain_index(lone / (lone + wait)),
        "is_success": goodput_weighted >= SUCCESS_GOODPUT,
    }


def refuse_options(options: Any) -> None:
    """Refuse options of a reset: there are none.

    Raises:
        ConfigError: One was given.
    """
    if options is None or (isinstance(options, Mapping) and not options):
        return
    raise ConfigError(
        f"reset options are {options!r}: this environment has none; give an instance as "
        "config={'requests': [...]}"
    )
