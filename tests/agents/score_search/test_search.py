"""The search improves on its start, tells what it cost, and repeats itself to the byte."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from sched_env.agents.score_search.scenarios import (
    Budget,
    ScenarioSet,
    ScenarioSource,
    layout_of,
)
from sched_env.agents.score_search.search import search
from sched_env.agents.score_search.space import ScoreSpace
from sched_env.cli.main import main
from sched_env.config import EnvConfig, TuningConfig
from sched_env.config.experiment import ObjectiveConfig
from sched_env.metrics.slo import goodput_weighted
from sched_env.policy.format import write_policy
from sched_env.policy.registry import resolve_policy
from sched_env.simulator import simulate

pytest.importorskip("cmaes")

SMALL = TuningConfig(
    iterations=4,
    population=6,
    scenarios=4,
    requests_per_scenario=60,
    loads=(1.0, 1.4),
    slo_factors=(0.7,),
    kv_factors=(1.0, 0.5),
    validate_every=2,
    validation_scenarios=8,
)


@pytest.fixture(scope="module")
def env() -> EnvConfig:
    observation = {"num_waiting_slots": 8, "privileged": True}
    return EnvConfig(trace="azure_code", observation=observation)


@pytest.fixture(scope="module")
def found(env):
    return search(env, SMALL, seed=3)


def test_an_objective_that_cares_for_the_tail_keeps_a_shorter_one(env, found):
    latency = ObjectiveConfig(p95_ttft_weight=0.5)
    waits = search(env, SMALL, seed=3, objective=latency)

    def worth(look):
        return latency.worth(look.validation_goodput, look.validation_p95_ttft_s)

    best = [look for look in waits.looks if look.is_best][-1]
    assert worth(best) == max(map(worth, waits.looks))
    assert waits.policy.card.training["validation_p95_ttft_s"] == best.validation_p95_ttft_s
    assert waits.policy.card.training["p95_ttft_weight"] == 0.5
    assert "p95_ttft_weight" not in found.policy.card.training
    assert waits.looks[1] != found.looks[1]
    assert latency.worth(0.8, math.nan) == 0.8


def test_candidates_may_be_shown_more(env):
    none = SMALL.replace(iterations=1, population=4, scenarios=1, validation_scenarios=1)
    more = search(env, none.replace(num_waiting_slots=11, num_running_slots=5), seed=3).policy
    assert more.card.observation.num_waiting_slots == 11
    assert more.card.observation.num_running_slots == 5


def test_the_best_mean_on_the_validation_split_is_kept(found):
    goodputs = [look.validation_goodput for look in found.looks]
    assert [look.iteration for look in found.looks] == [0, 2, 4]
    kept = found.policy.card.training
    assert kept["validation_goodput"] == max(goodputs) > goodputs[0]
    assert kept["validation_goodput_at_start"] == goodputs[0]
    assert kept["kept_iteration"] == found.looks[int(np.argmax(goodputs))].iteration
    assert found.policy.kind == "tuned"


def test_the_budget_counts_every_simulated_request(found):
    training = found.policy.card.training
    looks = len(found.looks) * SMALL.validation_scenarios
    runs = SMALL.iterations * SMALL.population * SMALL.scenarios + looks
    assert training["search_runs"] == runs
    assert training["search_requests"] == 60 * runs
    assert training["search_decisions"] > runs


def test_a_seed_decides_everything(env, found):
    again, other = search(env, SMALL, seed=3), search(env, SMALL, seed=4)
    assert again.looks == found.looks
    for name, tensor in found.policy.weights.items():
        assert tensor.tobytes() == again.policy.weights[name].tobytes()
    assert again.policy.card == found.policy.card
    assert other.looks != found.looks


def test_candidates_of_a_generation_meet_the_same_scenarios(env):
    source = ScenarioSource(env, SMALL, "train")
    one, two, three = (source.draw(12, 5, iteration) for iteration in (1, 1, 2))
    for left, right in zip(one, two, strict=True):
        assert left.table.equals(right.table)
        assert (left.seed, left.env) == (right.seed, right.env)
    assert any(not a.table.equals(b.table) for a, b in zip(one, three, strict=True))
    pools = {condition.env.scheduler.num_blocks for condition in one}
    assert pools == {4000, 2000}
    assert {condition.env.service.slo_factor for condition in one} == {0.7}


def test_a_scenario_is_worth_what_a_simulation_of_it_gives(env):
    conditions = ScenarioSource(env, SMALL, "validation").draw(3, 0, 0)
    policy = ScoreSpace(layout_of(env)).policy(np.full(ScoreSpace(layout_of(env)).size, 0.1))
    budget = Budget()
    scenarios = ScenarioSet(conditions, policy, budget)
    outcomes = [scenarios.outcome(policy), scenarios.outcome(policy)]
    runs = [simulate(one.table, policy, one.env, seed=one.seed).requests for one in conditions]
    tails_s = [np.nanpercentile(requests["first_token_s"] - requests["arrival_time_s"], 95)
               for requests in runs]  # fmt: skip
    goodput = float(np.mean([goodput_weighted(requests) for requests in runs]))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].goodput == goodput
    assert outcomes[0].p95_ttft_s == pytest.approx(np.mean(tails_s))
    assert budget.num_runs == 6


def test_the_command_writes_a_policy_that_evaluates(tmp_path: Path, capsys):
    out = tmp_path / "tuned"
    options = ["--iterations", "1", "--seed", "2", "--out", str(out)]
    small = ["tuning.population=4", "tuning.scenarios=2", "tuning.validation_scenarios=2"]
    assert main(["tune", "experiment/azure_code", *small, *options]) == 0
    printed = capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert f"{summary['search_requests']:,} simulated requests" in printed
    assert resolve_policy(out).name == "tuned_linear"
    assert (out / "progress.csv").read_text().count("\n") == 3


def test_the_command_says_how_far_it_is_between_looks(tmp_path: Path, capsys):
    small = ["tuning.population=4", "tuning.scenarios=1", "tuning.validation_scenarios=1"]
    small += ["tuning.requests_per_scenario=5", "--iterations", "4"]
    assert main(["tune", "experiment/azure_code", *small, "--out", str(tmp_path / "tuned")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tune")]
    heads = [f"tune {share} %" for share in (0, 25, 50, 75, 100)]
    assert [line.split(",")[0] for line in lines] == heads
    assert all("validation goodput" in line for line in lines)


def test_the_command_goes_on_from_a_policy(tmp_path: Path, capsys, env, found):
    start = write_policy(tmp_path / "start", found.policy.weights, found.policy.card)
    small = ["tuning.population=4", "tuning.scenarios=2", "tuning.validation_scenarios=2"]
    small += ["tuning.num_waiting_slots=5", "--iterations", "1"]
    out = tmp_path / "more"
    options = ["--start", str(start), "--out", str(out)]
    assert main(["tune", "experiment/azure_code", *small, *options]) == 0
    assert resolve_policy(out).card.observation.num_waiting_slots == 5
    training = resolve_policy(out).card.training
    spent = found.policy.card.training["search_requests"]
    assert training["search_requests"] == spent + training["polish_requests"]
    assert main(["tune", "experiment/azure_code", "--start", "fcfs", "--out", str(out)]) == 2
    assert "fcfs is a heuristic" in capsys.readouterr().err


def test_an_environment_can_be_tuned_for_too(tmp_path: Path, capsys):
    out = str(tmp_path / "tuned")
    assert main(["tune", "h100_8b_small_kv", "--iterations", "0", "--out", out]) == 2
    assert "iterations" in capsys.readouterr().err
    assert main(["tune", "experiment/nothing", "--out", out]) == 2
    assert "no configuration 'experiment/nothing'" in capsys.readouterr().err
    assert main(["tune", "h100_8b_small_kv", "--trace", "nowhere.csv", "--out", out]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
