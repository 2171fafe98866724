from __future__ import annotations

import math

import pytest

from sched_env.errors import SchedEnvError, UnknownNameError
from sched_env.evaluation.compare import compare, is_larger_better
from tests.evaluation.made_rows import row, three_policies


def by_policy(comparison):
    return {one.policy: one for one in comparison.policies}


def test_best_heuristic_is_the_one_with_the_best_mean():
    comparison = compare(three_policies())
    assert comparison.best_heuristic == "sjf"
    ppo = by_policy(comparison)["ppo"]
    assert ppo.versus_best is not None
    assert ppo.versus_best.difference.mean == pytest.approx(0.05 + 0.0015)
    assert ppo.versus_best.difference.low > 0.05
    assert (ppo.versus_best.num_better, ppo.versus_best.num_worse) == (8, 0)
    assert [versus.heuristic for versus in ppo.versus_each] == ["fcfs", "sjf"]


def test_the_best_heuristic_is_not_compared_with_itself():
    sjf = by_policy(compare(three_policies()))["sjf"]
    assert sjf.versus_best is None
    assert [versus.heuristic for versus in sjf.versus_each] == ["fcfs"]


def test_a_network_is_never_the_best_heuristic():
    rows = [row("fcfs", 0.1), row("ppo", 0.9, kind="network")]
    assert compare(rows).best_heuristic == "fcfs"
    assert compare(rows[1:]).best_heuristic is None


def test_a_smaller_latency_is_better():
    rows = [
        row("fcfs", 0.5, p99_ttft_ms=200.0),
        row("sjf", 0.9, p99_ttft_ms=300.0),
        row("ppo", 0.9, p99_ttft_ms=100.0, kind="network"),
    ]
    comparison = compare(rows, metric="p99_ttft_ms")
    assert comparison.best_heuristic == "fcfs"
    versus = by_policy(comparison)["ppo"].versus_best
    assert versus is not None
    assert versus.difference.mean == -100
    assert (versus.num_better, versus.num_worse) == (1, 0)


@pytest.mark.parametrize(
    ("metric", "larger"),
    [
        ("goodput_weighted_batch", True),
        ("output_throughput", True),
        ("mean_e2el_ms", False),
        ("num_preemptions", False),
    ],
)
def test_direction_of_metrics(metric, larger):
    assert is_larger_better(metric) is larger


def test_pairs_are_cells_that_both_have():
    rows = [
        row("fcfs", 0.5, seed=0),
        row("fcfs", 0.1, seed=1),
        row("ppo", 0.6, seed=0, kind="network"),
        row("ppo", 0.9, seed=7, kind="network"),
    ]
    versus = by_policy(compare(rows))["ppo"].versus_best
    assert versus is not None
    assert versus.difference.num_values == 1
    assert versus.difference.mean == pytest.approx(0.1)


def test_conditions_are_means_over_seeds():
    comparison = compare(three_policies())
    sjf = {(c.trace, c.load): c for c in comparison.conditions if c.policy == "sjf"}
    assert sjf["conv", 0.8].mean.mean == pytest.approx(0.8 - 0.08 + 0.015)
    assert sjf["conv", 1.3].mean.num_values == 4


def test_rows_read_from_json_have_null_for_undefined():
    rows = [row("fcfs", None), row("sjf", 0.4), row("fcfs", 0.5, seed=1), row("sjf", 0.3, seed=1)]
    comparison = compare(rows)
    assert by_policy(comparison)["fcfs"].mean.num_values == 1
    assert comparison.best_heuristic == "sjf"


def test_undefined_everywhere_has_no_best_heuristic():
    comparison = compare([row("fcfs", math.nan), row("sjf", math.nan)])
    assert comparison.best_heuristic is None


def test_wrong_inputs():
    with pytest.raises(SchedEnvError, match="no results to compare"):
        compare([])
    with pytest.raises(UnknownNameError, match="Did you mean 'goodput_weighted'"):
        compare([row("fcfs", 0.5)], metric="goodput_weigthed")
    with pytest.raises(SchedEnvError, match=r"policy 'fcfs' has two results .* seed 0"):
        compare([row("fcfs", 0.5), row("fcfs", 0.6)])
