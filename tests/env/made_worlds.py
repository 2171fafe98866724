"""Small random servers, once in the compiled core and once in the plain model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import sched_env.baselines  # noqa: F401  (registers the orders that screen waiting requests)
from sched_env.config import EnvConfig
from sched_env.engine.outlet import Outlet
from sched_env.engine.setup import episode_world
from sched_env.engine.world import World
from sched_env.policy.keys import Heuristic
from sched_env.policy.registry import resolve_policy
from sched_env.workload import RequestTable
from sched_env.workload.counter_rng import mix
from sched_env.workload.service_classes import draw_slo_jitter
from tests.env.plain_decisions import Job, PlainDecisions, Settings

CLASSES = (
    {"name": "fast", "share": 0.5, "weight": 3.0, "ttft_slo_s": 0.3, "tpot_slo_s": 0.03},
    {"name": "slow", "share": 0.5, "weight": 0.7, "ttft_slo_s": 2.0, "tpot_slo_s": 0.2},
)


def random_table(rng: np.random.Generator, longest_prompt: int) -> RequestTable:
    count = int(rng.integers(5, 40))
    length = float(rng.choice([0.2, 1.0, 4.0]))
    # Some arrive together, and none at the very end of an iteration.
    times = np.sort(np.round(rng.uniform(0, length, count), 2)) * 1.000123
    outputs = rng.integers(1, 20, count)
    return RequestTable.from_columns(
        arrival_time_s=times - times[0],
        prompt_tokens=rng.integers(1, longest_prompt + 1, count),
        output_tokens=outputs,
        service_class=rng.integers(0, 2, count),
        predicted_output_tokens=outputs * rng.uniform(0.5, 2.0, count),
    )


def random_config(rng: np.random.Generator) -> EnvConfig:
    return EnvConfig(
        scheduler={
            "max_num_batched_tokens": int(rng.choice([4, 9, 16, 32, 64])),
            "max_num_seqs": int(rng.integers(1, 9)),
            "num_blocks": int(rng.integers(3, 30)),
            "block_size": int(rng.choice([1, 2, 4, 8])),
            "reserve_full_isl": bool(rng.random() < 0.5),
            "max_model_len": int(rng.integers(8, 60)) if rng.random() < 0.2 else None,
        },
        cost={
            "kind": "affine",
            "base_s": 0.004,
            "per_decode_s": 0.0007,
            "per_prefill_token_s": 0.0003,
        },
        service={
            "classes": CLASSES,
            "slo_factor": float(rng.choice([0.3, 1.0])),
            "shed_hopeless": bool(rng.random() < 0.5),
            "request_timeout_s": float(rng.choice([0.4, 1.0])) if rng.random() < 0.3 else None,
        },
        observation={
            "num_waiting_slots": int(rng.integers(1, 7)),
            "num_running_slots": int(rng.integers(1, 5)),
            "screen": str(rng.choice(["fcfs", "weighted_sjf"])),
            "privileged": bool(rng.random() < 0.3),
        },
        reward={"goodput": 0.6, "miss": 0.4, "waiting": 0.25, "recompute": 1.5},
        episode={
            "horizon_s": float(rng.choice([1.0, 100.0])),
            "load": None,
            "discount_time_s": 2.0,
            "jump_ahead": bool(rng.random() < 0.5),
        },
    )


def make_world(config: EnvConfig, table: RequestTable, num_servers: int = 1) -> World:
    screen = cast("Heuristic", resolve_policy(config.observation.screen))
    return episode_world(config, [table], [None], screen, num_servers)


def plain_of(config: EnvConfig, table: RequestTable, env_seed: int) -> PlainDecisions:
    """Return the plain model of the first episode, from the start of the table."""
    cost = cast("Any", config.cost)
    settings = Settings(
        budget=config.scheduler.max_num_batched_tokens,
        seats=config.scheduler.max_num_seqs,
        blocks=config.scheduler.num_blocks,
        block_size=config.scheduler.block_size,
        waiting_slots=config.observation.num_waiting_slots,
        running_slots=config.observation.num_running_slots,
        reserve_full=bool(config.scheduler.reserve_full_isl),
        base_s=cost.base_s,
        per_decode_s=cost.per_decode_s,
        per_prefill_token_s=cost.per_prefill_token_s,
        shed=config.service.shed_hopeless,
        timeout_s=config.service.request_timeout_s or math.inf,
        horizon_s=config.episode.horizon_s,
        max_model_len=config.scheduler.max_model_len or math.inf,
        screen=config.observation.screen,
        tau_s=config.episode.discount_time_s,
        goodput=config.reward.goodput,
        miss=config.reward.miss,
        waiting=config.reward.waiting,
        recompute=config.reward.recompute,
    )
    seed = mix(env_seed, 0)
    jobs = [_job(config, settings, table, seed, row) for row in range(len(table))]
    return PlainDecisions(settings, jobs)


def _job(config: EnvConfig, settings: Settings, table: RequestTable, seed: int, row: int) -> Job:
    service = config.service.classes[int(table.service_class[row])]
    prompt, output = int(table.prompt_tokens[row]), int(table.output_tokens[row])
    chunks = math.ceil(prompt / settings.budget)
    lone_prefill_s = chunks * settings.base_s + prompt * settings.per_prefill_token_s
    factor = config.service.slo_factor
    too_long = prompt + output > settings.max_model_len
    return Job(
        row=row,
        arrival_s=float(table.arrival_time_s[row]),
        prompt=prompt,
        length=int(max(settings.max_model_len - prompt, 1)) if too_long else output,
        reason="max_model_len" if too_long else "stop",
        weight=service.weight,
        ttft_slo_s=factor * service.ttft_slo_s * draw_slo_jitter(seed, row) + 2 * lone_prefill_s,
        tpot_slo_s=factor * service.tpot_slo_s,
        lone_prefill_s=lone_prefill_s,
        predicted=float(table.predicted_output_tokens[row]),
    )


@dataclass
class Driver:
    """A world of one server, stepped without Gymnasium."""

    world: World

    def __post_init__(self) -> None:
        self.observations, self.masks, self.results = self.world.buffers()
        self.outlet = Outlet(self.observations, self.masks, self.results)

    @property
    def mask(self) -> np.ndarray:
        return self.masks[0]

    @property
    def state(self) -> Any:
        return self.world.state[0]

    def reset(self, seed: int, offset_s: float | None = None) -> None:
        self.world.state["env_seed"], self.world.state["episode"] = seed, 0
        self.world.reset(self.observations, self.masks, offset_s=offset_s)

    def step(self, action: int) -> tuple[float, bool, float, float, bool]:
        """Return reward, whether the episode is over, elapsed seconds, discount, illegal."""
        actions = np.array([action], np.int64)
        self.world.step(actions, self.outlet)
        reward, elapsed_s, discount, terminated, truncated, invalid = self.results[:, 0].tolist()
        return reward, terminated + truncated > 0, elapsed_s, discount, invalid > 0
