"""No policy exceeds the fluid bound, and hindsight is never worse than its start."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env import EnvConfig, RequestTable, simulate
from sched_env.baselines.clairvoyant_wsrpt import clairvoyant_wsrpt
from sched_env.cost.models import cost_record
from sched_env.cost.step_time import step_time_s
from sched_env.errors import ConfigError
from sched_env.evaluation.ceilings.fluid_bound import fluid_bound, planes_below
from sched_env.evaluation.ceilings.hindsight import LeveredRun, hindsight
from sched_env.metrics.slo import goodput_weighted

pytest.importorskip("scipy")


def table_of(rate_rps: float, count: int = 150, seed: int = 0) -> RequestTable:
    rng = np.random.default_rng(seed)
    return RequestTable.from_columns(
        arrival_time_s=np.cumsum(rng.exponential(1 / rate_rps, count)),
        prompt_tokens=rng.integers(20, 2500, count),
        output_tokens=rng.integers(1, 400, count),
    )


def env_of(num_blocks: int = 4000, slo_factor: float = 1.0) -> EnvConfig:
    return EnvConfig(scheduler={"num_blocks": num_blocks}, service={"slo_factor": slo_factor})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate_rps", [3.0, 15.0, 60.0])
@pytest.mark.parametrize(("num_blocks", "slo_factor"), [(4000, 1.0), (700, 0.7)])
def test_no_policy_exceeds_the_bound(rate_rps, num_blocks, slo_factor, seed):
    env, table = env_of(num_blocks, slo_factor), table_of(rate_rps, seed=seed)
    outcomes = {
        str(policy): simulate(table, policy, env, seed=seed, allow_privileged=True).requests
        for policy in ("fcfs", "weighted_sjf", "edf", "dynamic_budget", clairvoyant_wsrpt)
    }
    best = max(goodput_weighted(requests) for requests in outcomes.values())
    bound = fluid_bound(outcomes["fcfs"], env)
    assert best <= bound.goodput_weighted + 1e-9
    assert bound.goodput_weighted <= 1.0


def test_the_bound_bites_where_the_load_cannot_be_served():
    env = env_of()
    requests = simulate(table_of(200.0, 300), "fcfs", env).requests
    light = simulate(table_of(1.0, 60), "fcfs", env).requests
    assert fluid_bound(requests, env).goodput_weighted < 0.95
    assert fluid_bound(light, env).goodput_weighted == pytest.approx(1.0)


def test_finer_bins_never_loosen_the_bound():
    env = env_of()
    requests = simulate(table_of(120.0, 200), "fcfs", env).requests
    coarse, fine = (fluid_bound(requests, env, bin_s=bin_s) for bin_s in (2.0, 1.0))
    assert fine.goodput_weighted <= coarse.goodput_weighted + 1e-9
    assert fine.num_variables > coarse.num_variables


def test_planes_lie_below_the_step_time():
    env = env_of()
    cost = cost_record(env.cost).view(np.recarray)[0]
    planes = planes_below(env)
    assert len(planes) > 1
    rng = np.random.default_rng(0)
    for _ in range(500):
        decodes = int(rng.integers(0, 65))
        context = int(rng.integers(decodes, 64_000)) if decodes else 0
        chunk = int(rng.integers(0, 2048 - decodes + 1))
        if decodes + chunk == 0:
            continue
        taken = step_time_s(cost, decodes, context, chunk, 0.0, decodes + (chunk > 0))
        for plane in planes:
            least = plane.prefill_token_s * chunk + plane.decode_s * decodes
            least += plane.context_token_s * context
            assert least <= taken


def test_a_bound_without_meaning_is_refused():
    env = env_of()
    requests = simulate(table_of(5.0, 20), "fcfs", env).requests
    shared = env.replace(scheduler=env.scheduler.replace(enable_prefix_caching=True))
    with pytest.raises(ConfigError, match="enable_prefix_caching"):
        fluid_bound(requests, shared)
    with pytest.raises(ConfigError, match="bin_s is 0"):
        fluid_bound(requests, env, bin_s=0.0)


@pytest.mark.parametrize("bin_s", [1e-6, 1e-300])
def test_bins_that_would_take_gigabytes_are_refused(bin_s):
    requests = simulate(table_of(5.0, 20), "fcfs", env_of()).requests
    with pytest.raises(ConfigError, match=r"bins of 1e-\d+ s, .* give a larger ceilings\.bin_s"):
        fluid_bound(requests, env_of(), bin_s=bin_s)


@pytest.mark.parametrize("policy", ["weighted_sjf", "dynamic_budget"])
def test_hindsight_improves_on_true_lengths_and_repeats_itself(policy):
    env, table = env_of(slo_factor=0.7), table_of(40.0, 120)
    found = hindsight(table, policy, env, seed=1, num_runs=40)
    oracle = env.replace(service=env.service.replace(length_prediction="oracle"))
    told = simulate(table, policy, oracle, seed=1).requests
    assert found.start == goodput_weighted(told)
    assert found.best > found.start
    assert found.luck > 0
    assert hindsight(table, policy, env, seed=1, num_runs=40) == found


def test_a_lever_moves_one_request():
    table = RequestTable.from_columns(
        arrival_time_s=[0.0, 0.01, 0.02], prompt_tokens=[50, 50, 50], output_tokens=[60, 50, 20]
    )
    env = EnvConfig(scheduler={"max_num_seqs": 1}, service={"shed_hopeless": False})
    run = LeveredRun(table, "sjf", env)
    first = run.outcome(np.zeros(3))["first_token_s"]
    assert first[2] < first[1]
    moved = run.outcome(np.array([0.0, -5.0, 0.0]))["first_token_s"]
    assert moved[1] < moved[2]


def test_hindsight_needs_runs():
    with pytest.raises(ConfigError, match="0 runs"):
        hindsight(table_of(5.0, 10), "sjf", env_of(), num_runs=0)
