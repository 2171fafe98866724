"""What the last step of an episode tells about it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_env.compiled import compiled, compiled_part
from sched_env.engine.memory import memory_at, server_of
from sched_env.engine.world import World
from sched_env.metrics import fairness, latency
from sched_env.metrics.request_times import E2EL, QUEUE_WAIT, SLOWDOWN, TPOT, TTFT, known_times

SUCCESS_GOODPUT = 0.9
"""An episode succeeds (``is_success``) from this weighted goodput on."""

_STARVATION_S = fairness.STARVATION_S

_mean: Any = compiled_part(latency.mean)
_percentile_of: Any = compiled_part(latency.percentile_of)
_share_kept: Any = compiled_part(fairness.share_kept)
_jain_index: Any = compiled_part(fairness.jain_index)


class EpisodeFigures(NamedTuple):
    """The metrics of an episode by their usual names, in the order in which they are told."""

    num_arrived: int
    num_injected: int
    num_finished: int
    num_rejected: int
    num_timed_out: int
    num_preemptions: int
    num_decisions: int
    goodput_weighted: float
    slo_attainment: float
    request_goodput: float
    output_throughput: float
    total_token_throughput: float
    batch_tokens_mean: float
    kv_cache_usage_mean: float
    makespan_s: float
    load: float
    is_success: bool
    mean_queue_wait_ms: float
    p95_queue_wait_ms: float
    p50_ttft_ms: float
    p99_ttft_ms: float
    p99_tpot_ms: float
    p99_e2el_ms: float
    num_starved: int
    jain_fairness: float


def episode_info(world: World, index: int) -> dict[str, Any]:
    """Return the metrics of the episode that server ``index`` has just ended, by their usual names.

    They count the requests whose fate is known: ended, or past their deadline. A truncated episode
    leaves others behind, which would otherwise count as missed. It runs once an episode, so it
    reads the core's counters where they say the same as the table of requests.
    """
    num_arrived = int(world.state["next_row"][index])
    times, counts = known_times(world.requests[index, :num_arrived])
    for row in (QUEUE_WAIT, TTFT, TPOT, E2EL):
        times[row, : counts[row]].sort()
    return _figures(world.address, index, times, counts)._asdict()


@compiled
def _figures(
    address: int, index: int, times: NDArray[np.float64], counts: NDArray[np.int64]
) -> EpisodeFigures:
    """Return the metrics of server ``index`` of a world.

    ``times`` and ``counts`` are what :func:`known_times` told of its requests, rows in order.
    """
    state = server_of(memory_at(address), index)
    settled = state.num_met + state.num_missed
    weight = state.weight_met + state.weight_missed
    clock_s, busy_s = max(state.clock_s, 1e-9), max(state.busy_s, 1e-9)
    tokens = state.num_computed_tokens
    goodput_weighted = state.weight_met / weight if weight > 0.0 else 1.0
    slo_attainment = state.num_met / settled if settled > 0 else 1.0
    queue_wait_s, ttft_s = times[QUEUE_WAIT, : counts[QUEUE_WAIT]], times[TTFT, : counts[TTFT]]
    tpot_s, e2el_s = times[TPOT, : counts[TPOT]], times[E2EL, : counts[E2EL]]
    kept = _share_kept(times[SLOWDOWN, : counts[SLOWDOWN]])
    jain_fairness = _jain_index(kept) if kept.size > 0 else 1.0
    return EpisodeFigures(
        num_arrived=state.next_row,
        num_injected=settled,
        num_finished=state.num_finished,
        num_rejected=state.num_rejected,
        num_timed_out=state.num_timed_out,
        num_preemptions=state.num_preemptions,
        num_decisions=state.decisions,
        goodput_weighted=goodput_weighted,
        slo_attainment=slo_attainment,
        request_goodput=state.num_met / clock_s,
        output_throughput=state.num_output_tokens / clock_s,
        total_token_throughput=tokens / clock_s,
        batch_tokens_mean=tokens / max(state.iteration, 1),
        kv_cache_usage_mean=state.kv_block_seconds / busy_s / state.num_blocks,
        makespan_s=clock_s,
        load=state.load,
        is_success=goodput_weighted >= SUCCESS_GOODPUT,
        mean_queue_wait_ms=1e3 * _mean(queue_wait_s),
        p95_queue_wait_ms=1e3 * _percentile_of(queue_wait_s, 95.0),
        p50_ttft_ms=1e3 * _percentile_of(ttft_s, 50.0),
        p99_ttft_ms=1e3 * _percentile_of(ttft_s, 99.0),
        p99_tpot_ms=1e3 * _percentile_of(tpot_s, 99.0),
        p99_e2el_ms=1e3 * _percentile_of(e2el_s, 99.0),
        num_starved=counts[QUEUE_WAIT] - np.searchsorted(queue_wait_s, _STARVATION_S, "right"),
        jain_fairness=jain_fairness,
    )
