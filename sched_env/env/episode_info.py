"""What the last step of an episode tells about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from sched_env.engine.world import World
from sched_env.metrics import latency
from sched_env.metrics.fairness import STARVATION_S, jain_fairness

SUCCESS_GOODPUT = 0.9
"""An episode succeeds (``is_success``) from this weighted goodput on."""


def episode_info(world: World, index: int) -> dict[str, Any]:
    """Return the metrics of the episode that server ``index`` has just ended, by their usual names.

    They count the requests whose fate is known: ended, or past their deadline. A truncated episode
    leaves others behind, which would otherwise count as missed. It runs once an episode, so it
    reads the core's counters where they say the same as the table of requests.
    """
    counts = dict(zip(_COUNTERS, world.state[_COUNTERS][index].tolist(), strict=True))
    settled = counts["num_met"] + counts["num_missed"]
    weight = counts["weight_met"] + counts["weight_missed"]
    clock_s, busy_s = max(counts["clock_s"], 1e-9), max(counts["busy_s"], 1e-9)
    tokens = counts["num_computed_tokens"]
    goodput_weighted = counts["weight_met"] / weight if weight else 1.0
    return {
        "num_arrived": counts["next_row"],
        "num_injected": settled,
        "num_finished": counts["num_finished"],
        "num_rejected": counts["num_rejected"],
        "num_timed_out": counts["num_timed_out"],
        "num_preemptions": counts["num_preemptions"],
        "num_decisions": counts["decisions"],
        "goodput_weighted": goodput_weighted,
        "slo_attainment": counts["num_met"] / settled if settled else 1.0,
        "request_goodput": counts["num_met"] / clock_s,
        "output_throughput": counts["num_output_tokens"] / clock_s,
        "total_token_throughput": tokens / clock_s,
        "batch_tokens_mean": tokens / max(counts["iteration"], 1),
        "kv_cache_usage_mean": counts["kv_block_seconds"] / busy_s / counts["num_blocks"],
        "makespan_s": clock_s,
        "load": counts["load"],
        "is_success": goodput_weighted >= SUCCESS_GOODPUT,
        **_latencies(world, index, counts["next_row"]),
    }


_COUNTERS: list[str] = [
    "next_row",
    "num_finished",
    "num_rejected",
    "num_timed_out",
    "num_preemptions",
    "num_met",
    "num_missed",
    "weight_met",
    "weight_missed",
    "num_computed_tokens",
    "num_output_tokens",
    "kv_block_seconds",
    "busy_s",
    "clock_s",
    "iteration",
    "decisions",
    "load",
    "num_blocks",
]
_OUTCOMES: list[str] = [
    "arrival_time_s",
    "first_scheduled_s",
    "first_token_s",
    "finish_s",
    "ttft_slo_s",
    "tpot_slo_s",
    "num_output_tokens",
    "output_tokens",
    "status",
    "finish_reason",
]


def _latencies(world: World, index: int, arrived: int) -> dict[str, float]:
    requests = world.requests[index, :arrived][_OUTCOMES]
    ended = requests[~np.isnan(requests["finish_s"])]
    wait_s = latency.queue_wait_s(ended)
    figures = {"mean_queue_wait_ms": 1e3 * latency.mean(wait_s)}
    wanted = (
        ("queue_wait", wait_s, (95,)),
        ("ttft", latency.ttft_s(ended), (50, 99)),
        ("tpot", latency.tpot_s(ended), (99,)),
        ("e2el", latency.e2el_s(ended), (99,)),
    )
    for name, values_s, which in wanted:
        for percent, value_s in latency.percentiles(values_s, which).items():
            figures[f"p{percent}_{name}_ms"] = 1e3 * value_s
    figures["num_starved"] = int((wait_s > STARVATION_S).sum())
    figures["jain_fairness"] = jain_fairness(ended) if len(ended) else 1.0
    return figures
