"""What went wrong for people in simulators like this one; the number is that of the case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.engine import kernels
from sched_env.engine.invariants import check_invariants
from sched_env.engine.setup import run_world
from sched_env.metrics import latency
from sched_env.policy.keys import Heuristic
from sched_env.policy.names import known_policies
from sched_env.policy.registry import resolve_policy

AFFINE = {"kind": "affine", "base_s": 0.0, "per_decode_s": 0.1, "per_prefill_token_s": 0.05}


def three_tokens_and_one() -> Any:
    """Return the outcomes of A, with tokens at 0.5, 0.6 and 0.8 s, and of B, with one token.

    B arrives while A decodes; the prefill of B makes A's third token late.
    """
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.55], prompt_tokens=[10, 2], output_tokens=[3, 1]
    )
    return simulate(table, "fcfs", EnvConfig(cost=AFFINE, service={"shed_hopeless": False}))


def test_case_16_definitions_of_the_latencies() -> None:
    result = three_tokens_and_one()
    assert latency.ttft_s(result.requests)[0] == pytest.approx(0.5)
    assert latency.tpot_s(result.requests)[0] == pytest.approx(0.15)
    assert result.itl_counts.sum() == 2
    middles = (result.itl_edges_s[:-1] + result.itl_edges_s[1:]) / 2
    gaps = np.repeat(middles, result.itl_counts)
    assert gaps == pytest.approx([0.1, 0.2], rel=0.01)
    # One token has no time per output token: it is left out, not 0.
    assert np.isnan(latency.tpot_s(result.requests)[1])
    assert latency.mean(latency.tpot_s(result.requests)) == pytest.approx(0.15)


def test_case_17_ttft_counts_from_arrival_and_queue_wait_stands_alone() -> None:
    requests = three_tokens_and_one().requests
    assert latency.ttft_s(requests)[1] == pytest.approx(0.25)
    assert latency.queue_wait_s(requests)[1] == pytest.approx(0.05)


HEURISTICS = [name for name in known_policies() if isinstance(resolve_policy(name), Heuristic)]


@pytest.mark.parametrize("policy", HEURISTICS)
def test_cases_18_and_19_nothing_is_lost_and_seats_hold_after_every_batch(policy: str) -> None:
    rng = np.random.default_rng(6)
    table = RequestTable.from_columns(
        arrival_time_s=np.concatenate([np.zeros(40), np.sort(rng.uniform(0, 6, 40))]),
        prompt_tokens=[6000, *rng.integers(5, 500, 79)],
        output_tokens=rng.integers(1, 400, 80),
    )
    env = EnvConfig()
    env = env.replace(
        scheduler=env.scheduler.replace(num_blocks=300, max_num_seqs=12),
        service=env.service.replace(request_timeout_s=3.0),
    )
    key: Any = resolve_policy(policy)
    world = run_world(env, table, key, seed=1, until_s=1e9)
    kernels.reset_one(world.address)
    before, most, is_over = None, 0, False
    while not is_over:
        is_over = kernels.run(world.address, 1)
        before = check_invariants(world, before=before)
        most = max(most, int(before.state["num_running"]))
    assert before is not None
    assert most == 12
    assert before.state["free_blocks"] == 300
    state = before.state
    assert min(state[f"num_{name}"] for name in ("finished", "rejected", "timed_out")) > 0
    assert state["num_preemptions"] > 0
    ended = state["num_finished"] + state["num_rejected"] + state["num_timed_out"]
    assert ended == 80
