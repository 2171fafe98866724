"""What the last step of an episode tells about it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sched_env.engine.world import World
from sched_env.metrics import latency
from sched_env.metrics.fairness import STARVATION_S, jain_index, share_kept
from sched_env.metrics.request_times import E2EL, QUEUE_WAIT, SLOWDOWN, TPOT, TTFT, known_times

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
        **_latencies(world.requests[index, : counts["next_row"]]),
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
_PERCENTILES: tuple[tuple[str, int, int], ...] = (
    ("p95_queue_wait_ms", QUEUE_WAIT, 95),
    ("p50_ttft_ms", TTFT, 50),
    ("p99_ttft_ms", TTFT, 99),
    ("p99_tpot_ms", TPOT, 99),
    ("p99_e2el_ms", E2EL, 99),
)


def _latencies(requests: NDArray[Any]) -> dict[str, float]:
    """Return the figures of those requests, REQUEST (n,), that have ended."""
    known = known_times(requests)
    for row in (QUEUE_WAIT, TTFT, TPOT, E2EL):
        known[row].sort()
    figures = {"mean_queue_wait_ms": 1e3 * latency.mean(known[QUEUE_WAIT])}
    for name, row, percent in _PERCENTILES:
        figures[name] = 1e3 * latency.percentile_of(known[row], percent)
    waits_s, kept = known[QUEUE_WAIT], share_kept(known[SLOWDOWN])
    figures["num_starved"] = len(waits_s) - int(waits_s.searchsorted(STARVATION_S, "right"))
    figures["jain_fairness"] = jain_index(kept) if kept.size else 1.0
    return figures
