"""From configurations and request tables to the memory of the core."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config.env import EnvConfig
from sched_env.config.scheduler import SchedulerConfig
from sched_env.config.service import ServiceConfig
from sched_env.cost.models import cost_record, modelled
from sched_env.cost.reach import check_reach
from sched_env.cost.step_time import step_time_s
from sched_env.engine.allocation import records_of
from sched_env.engine.records import (
    NO_LIMIT,
    RESERVE_MAX,
    RESERVE_NOTHING,
    RESERVE_PREDICTED,
    SEGMENT,
    TRACE,
    VICTIM_LARGEST_KEY,
    VICTIM_LEAST_COMPUTED,
    VICTIM_LOWEST_PRIORITY,
    VICTIM_MOST_BLOCKS_PER_TOKEN,
    VICTIM_RANDOM,
    VICTIM_TAIL,
)
from sched_env.engine.world import Key, World
from sched_env.errors import ConfigError, TraceError
from sched_env.workload.service_classes import service_class_array
from sched_env.workload.table import RequestTable

_TYPICAL_CONTEXT_TOKENS = 1024
_VICTIMS = {
    None: VICTIM_LARGEST_KEY,
    "tail": VICTIM_TAIL,
    "priority": VICTIM_LOWEST_PRIORITY,
    "least_computed": VICTIM_LEAST_COMPUTED,
    "most_blocks_per_token": VICTIM_MOST_BLOCKS_PER_TOKEN,
    "random": VICTIM_RANDOM,
}
_RESERVES = {"off": RESERVE_NOTHING, "predicted": RESERVE_PREDICTED, "max": RESERVE_MAX}
_AS_GIVEN = (
    "reserve_full_isl",
    "readmit_after_preemption",
    "watermark_blocks",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "prefill_schedule_interval",
    "async_scheduling",
    "enable_prefix_caching",
    "preemptive_priority",
    "resume_first",
    "swap_s_per_block",
    "skip_ahead",
)


def scheduler_settings(config: SchedulerConfig) -> dict[str, float]:
    """Return the SERVER fields of a scheduler's budgets and rules."""
    return {
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_num_seqs": config.max_num_seqs,
        "num_blocks": config.num_blocks,
        "block_size": config.block_size,
        "max_model_len": config.max_model_len or int(NO_LIMIT),
        "max_num_active_seqs": config.max_num_active_seqs or config.max_num_seqs,
        "victim": _VICTIMS[config.victim],
        "victim_tie_last": config.victim_tie == "last",
        "swaps": config.preemption == "swap",
        "reserve_outputs": _RESERVES[config.no_evict],
        "hash_block_tokens": config.block_size,
        **{name: getattr(config, name) for name in _AS_GIVEN},
        "request_timeout_s": math.inf,
        "horizon_s": math.inf,
        "discount_time_s": 1.0,
        "slo_factor": 1.0,
    }


def _service_settings(config: ServiceConfig) -> dict[str, float]:
    prediction = config.length_prediction
    sigma = {"none": math.nan, "oracle": 0.0, "noisy": prediction.sigma}[prediction.kind]
    return {
        "shed_hopeless": config.shed_hopeless,
        "request_timeout_s": config.request_timeout_s or math.inf,
        "slo_factor": config.slo_factor,
        "length_sigma": sigma,
    }


def server_settings(env: EnvConfig, tables: Sequence[RequestTable]) -> dict[str, float]:
    """Return the SERVER fields that runs and episodes of an environment share."""
    outputs = np.concatenate([table.output_tokens for table in tables])
    return {
        **scheduler_settings(env.scheduler),
        **_service_settings(env.service),
        "num_waiting_slots": env.observation.num_waiting_slots,
        "num_running_slots": env.observation.num_running_slots,
        "privileged": env.observation.privileged,
        "discount_time_s": env.episode.discount_time_s,
        "jump_ahead": env.episode.jump_ahead,
        "mean_output_tokens": float(np.mean(outputs)) if len(outputs) else 1.0,
        "token_time_s": _token_time_s(env),
    }


def _token_time_s(env: EnvConfig) -> float:
    """Return one output token's share of a decode step with half of the seats taken."""
    cost = cost_record(modelled(env.cost)).view(np.recarray)[0]
    sequences = max(env.scheduler.max_num_seqs // 2, 1)
    context = sequences * _TYPICAL_CONTEXT_TOKENS
    return step_time_s(cost, sequences, context, 0, 0.0, sequences) / sequences


def episode_settings(env: EnvConfig) -> dict[str, float]:
    """Return the SERVER fields that only episodes of an environment have."""
    low, high = env.episode.load or (0.0, 0.0)
    return {
        "track_misses": True,
        "horizon_s": env.episode.horizon_s + env.episode.warmup_s,
        "warmup_s": env.episode.warmup_s,
        "reward_goodput": env.reward.goodput,
        "reward_miss": env.reward.miss,
        "reward_waiting": env.reward.waiting,
        "reward_recompute": env.reward.recompute,
        "load_low": low,
        "load_high": high,
    }


def trace_records(tables: Sequence[RequestTable]) -> NDArray[Any]:
    """Return the rows of all tables behind one another, TRACE (sum of lengths,)."""
    trace = records_of(sum(len(table) for table in tables), TRACE)
    start, num_hashes = 0, 0
    for table in tables:
        rows = trace[start : start + len(table)]
        for name in ("arrival_time_s", "prompt_tokens", "output_tokens"):
            rows[name] = getattr(table, name)
        rows["priority"] = table.priority if np.any(table.priority) else math.nan
        rows["service_class"] = table.service_class
        rows["predicted_output_tokens"] = table.predicted_output_tokens
        if table.hash_ids is not None:
            rows["first_hash"] = num_hashes + table.hash_ids.offsets[:-1]
            rows["num_hashes"] = table.hash_ids.num_blocks
            num_hashes += len(table.hash_ids.values)
        start += len(table)
    tokens = trace["prompt_tokens"].astype(np.float64) + trace["output_tokens"]
    trace["cumulative_tokens"] = np.cumsum(tokens) - tokens
    return trace


def content_ids(
    config: SchedulerConfig, tables: Sequence[RequestTable]
) -> tuple[NDArray[np.int64], int]:
    """Return what prefix caching knows prompts by, in the order of ``trace_records``.

    Returns:
        int64 ids of all tables behind one another, different ones for each table, and the tokens
        that one id stands for. No ids without prefix caching, or where the traces have none: then
        a request shares blocks with nobody but itself, after a preemption.

    Raises:
        ConfigError: Blocks do not fit evenly into what an id stands for, or the other way round.
    """
    hashes = [table.hash_ids for table in tables if table.hash_ids is not None]
    if not config.enable_prefix_caching or not hashes:
        return np.zeros(0, np.int64), config.block_size
    sizes = {one.block_tokens for one in hashes}
    for tokens in sizes:
        larger, smaller = max(tokens, config.block_size), min(tokens, config.block_size)
        if larger % smaller or len(sizes) > 1:
            raise ConfigError(
                f"block_size {config.block_size} does not go with hash_ids of "
                f"{' and '.join(map(str, sorted(sizes)))} tokens: with enable_prefix_caching one "
                "of the two must be a multiple of the other, the same for all traces"
            )
    parts = [one.values * len(hashes) + i for i, one in enumerate(hashes)]
    return np.concatenate(parts), sizes.pop()


def segment_records(
    tables: Sequence[RequestTable], capacities_rps: Sequence[float | None]
) -> NDArray[Any]:
    """Return where each table lies in ``trace_records`` and how its intervals scale at load 1.

    A capacity of ``None`` keeps the recorded rate at every load.
    """
    segments = records_of(len(tables), SEGMENT)
    start = 0
    for segment, table, capacity_rps in zip(segments, tables, capacities_rps, strict=True):
        segment["first_row"] = start
        segment["end_row"] = start + len(table)
        segment["start_s"] = table.arrival_time_s[0]
        segment["end_s"] = table.arrival_time_s[-1]
        segment["interval_scale"] = 1.0
        if capacity_rps is not None and table.span_s > 0:
            segment["interval_scale"] = table.mean_rate_rps / capacity_rps
        start += len(table)
    return segments


def check_classes(tables: Sequence[RequestTable], service: ServiceConfig) -> None:
    """Refuse a trace that names a service class which is not configured.

    Raises:
        TraceError: The class number is too large.
    """
    for table in tables:
        highest = int(table.service_class.max(initial=-1))
        if highest >= len(service.classes):
            raise TraceError(
                f"{table.source.name}: service_class {highest} is not one of the "
                f"{len(service.classes)} configured classes (0 to {len(service.classes) - 1}); "
                "add a class under service.classes or change the trace"
            )


def reaching_cost(env: EnvConfig, tables: Sequence[RequestTable]) -> NDArray[Any]:
    """Return the step-time model, COST (1,), if it reaches as far as the server's limits.

    Raises:
        ConfigError: Steps could lie beyond what a table measured, by more than its margin.
    """
    cost = cost_record(modelled(env.cost))
    lengths = [table.prompt_tokens.astype(np.int64) + table.output_tokens for table in tables]
    longest = max(int(length.max(initial=1)) for length in lengths)
    if env.scheduler.max_model_len is not None:
        longest = min(longest, env.scheduler.max_model_len)
    check_reach(
        cost,
        max_num_seqs=min(env.scheduler.max_num_seqs, env.scheduler.num_blocks),
        max_num_batched_tokens=env.scheduler.max_num_batched_tokens,
        longest_tokens=longest,
    )
    return cost


def episode_world(
    env: EnvConfig,
    tables: Sequence[RequestTable],
    capacities_rps: Sequence[float | None],
    key: Key,
    num_servers: int,
) -> World:
    """Return N servers that play episodes of an environment."""
    check_classes(tables, env.service)
    settings = {**server_settings(env, tables), **episode_settings(env)}
    segments = segment_records(tables, capacities_rps)
    hash_ids, settings["hash_block_tokens"] = content_ids(env.scheduler, tables)
    return World(
        num_servers,
        settings,
        key,
        cost=reaching_cost(env, tables),
        classes=service_class_array(env.service.classes),
        trace=trace_records(tables),
        segments=segments,
        row_capacity=_most_rows(env, tables, segments),
        hash_ids=hash_ids,
    )


def _most_rows(env: EnvConfig, tables: Sequence[RequestTable], segments: NDArray[Any]) -> int:
    """Return the largest number of requests that one episode can meet."""
    horizon_s = env.episode.horizon_s + env.episode.warmup_s
    load = env.episode.load[1] if env.episode.load else 1.0
    most = 1
    for table, segment in zip(tables, segments, strict=True):
        window_s = horizon_s * load / float(segment["interval_scale"])
        times = table.arrival_time_s
        ends = np.searchsorted(times, times + window_s, side="right")
        most = max(most, int(np.max(ends - np.arange(len(times)))) + 1)
    if env.episode.max_requests:
        most = min(most, env.episode.max_requests)
    return most


def run_world(
    env: EnvConfig,
    table: RequestTable,
    key: Key,
    *,
    seed: int,
    until_s: float,
    num_events: int = 0,
    count_itl: bool = True,
    shows_requests: bool = True,
) -> World:
    """Return one server that is about to receive all requests of a table.

    A key function needs no ``shows_requests``: nothing is kept for an observation then.
    """
    check_classes([table], env.service)
    trace = trace_records([table])
    settings = server_settings(env, [table])
    settings |= {"horizon_s": until_s, "interval_scale": 1.0, "num_rows": len(table), "seed": seed}
    hash_ids, settings["hash_block_tokens"] = content_ids(env.scheduler, [table])
    if not shows_requests:
        settings |= {"num_waiting_slots": 0, "num_running_slots": 0}
    return World(
        1,
        settings,
        key,
        cost=reaching_cost(env, [table]),
        classes=service_class_array(env.service.classes),
        trace=trace,
        segments=segment_records([table], [None]),
        row_capacity=max(len(table), 1),
        num_events=num_events,
        count_itl=count_itl,
        hash_ids=hash_ids,
    )
