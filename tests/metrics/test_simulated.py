from __future__ import annotations

import numpy as np
import pytest

from sched_env.config import EnvConfig
from sched_env.metrics import latency, summarize
from sched_env.metrics.slo import is_slo_met
from sched_env.policy.registry import known_policies
from sched_env.simulator.simulate import simulate
from sched_env.workload import RequestTable


@pytest.fixture(scope="module")
def table():
    """Return a burst whose KV needs 2,100 blocks of 16 at full batch."""
    rng = np.random.default_rng(5)
    return RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 20, 300)),
        prompt_tokens=rng.integers(50, 700, 300),
        output_tokens=rng.integers(1, 400, 300),
    )


def served(table, num_blocks=4000, **service):
    env = EnvConfig()
    env = env.replace(
        scheduler=env.scheduler.replace(num_blocks=num_blocks),
        service=env.service.replace(**service),
    )
    return simulate(table, "fcfs", env, seed=1, record_events=True)


def test_histogram_of_gaps_agrees_with_the_records(table):
    result = served(table, shed_hopeless=False)
    requests = result.requests
    gaps = requests["num_output_tokens"] - 1
    assert int(result.itl_counts.sum()) == int(gaps.sum())
    exact = (requests["finish_s"] - requests["first_token_s"]).sum() / gaps.sum()
    row = summarize(result)
    assert row["mean_itl_ms"] == pytest.approx(1e3 * exact, rel=0.01)


def test_preemptions_counted_by_request_are_those_of_the_event_log(table):
    result = served(table, num_blocks=500, shed_hopeless=False)
    row = summarize(result)
    assert result.preemptions is not None
    assert row["num_preemptions"] == len(result.preemptions) > 0
    assert row["num_recomputed_tokens"] == int(result.preemptions["tokens"].sum())
    assert row["max_preemptions_per_request"] == int(result.preemptions["num_preemptions"].max())


def test_recompute_tax_rises_as_the_kv_cache_shrinks(table):
    blocks = (4000, 1000, 500, 250, 125)
    taxes = [
        summarize(served(table, num_blocks=n, shed_hopeless=False))["recompute_tax"] for n in blocks
    ]
    assert taxes[0] == 0
    assert taxes == sorted(taxes)
    assert 0.1 < taxes[-1] < 1


def test_every_request_is_accounted_for_under_shedding_and_timeouts(table):
    result = served(table, num_blocks=200, request_timeout_s=5.0)
    row = summarize(result)
    assert row["num_injected"] == 300
    assert row["num_shed"] > 0
    assert row["num_timed_out"] > 0
    met = is_slo_met(result.requests)
    assert row["slo_attainment"] == met.mean()
    assert not met[result.requests["finish_reason"] > 3].any()


def test_queue_wait_is_part_of_ttft(table):
    requests = served(table, num_blocks=500, shed_hopeless=False).requests
    assert (latency.ttft_s(requests) >= latency.queue_wait_s(requests)).all()


def test_who_could_not_go_on_is_counted():
    """Without chunks a preempted request may be too long for any batch, with its outputs."""
    table = RequestTable.from_columns(
        arrival_time_s=np.zeros(8),
        prompt_tokens=np.full(8, 60),
        output_tokens=np.full(8, 40),
    )
    env = EnvConfig().replace(
        scheduler={"num_blocks": 20, "max_num_batched_tokens": 64, "enable_chunked_prefill": False},
        service={"shed_hopeless": False},
    )
    row = summarize(simulate(table, "fcfs", env, seed=0))
    assert row["num_finished"] == 8
    assert row["num_preemptions"] > 0
    assert row["slo_attainment"] < 1


@pytest.mark.parametrize("seed", range(40))
def test_no_request_is_lost_under_any_rules(seed):
    rng = np.random.default_rng([40, seed])
    table = RequestTable.from_columns(
        arrival_time_s=np.sort(rng.uniform(0, 3, 60)),
        prompt_tokens=rng.integers(1, 400, 60),
        output_tokens=rng.integers(1, 200, 60),
        priority=rng.integers(1, 3, 60).astype(float),
    )
    switches = {
        "enable_chunked_prefill": False,
        "reserve_full_isl": False,
        "preemptive_priority": True,
        "resume_first": True,
        "readmit_after_preemption": True,
        "victim": str(rng.choice(["tail", "least_computed", "most_blocks_per_token", "random"])),
        "long_prefill_token_threshold": int(rng.integers(1, 64)),
        "max_model_len": int(rng.integers(100, 500)),
        "preemption": "swap",
        "watermark": 0.1,
        "skip_ahead": 2,
    }
    chosen = {name: value for name, value in switches.items() if rng.random() < 0.35}
    env = EnvConfig().replace(
        scheduler={
            "num_blocks": int(rng.integers(2, 60)),
            "max_num_batched_tokens": int(rng.integers(16, 512)),
            "max_num_seqs": int(rng.integers(1, 16)),
            **chosen,
        },
        service={
            "shed_hopeless": bool(rng.integers(2)),
            "request_timeout_s": [None, 2.0][int(rng.integers(2))],
        },
    )
    policy = str(rng.choice(known_policies()))
    row = summarize(simulate(table, policy, env, seed=seed))
    assert row["num_injected"] == 60
