"""What was spent on a policy stands beside its results."""

from __future__ import annotations

from sched_env.evaluation.budgets import opponents_table, policies_table
from sched_env.evaluation.compare import compare


def row(policy, kind, seed, goodput):
    return {
        "policy": policy,
        "policy_kind": kind,
        "trace": "t",
        "load": 1.0,
        "seed": seed,
        "goodput_weighted": goodput,
    }


ROWS = [
    row(policy, kind, seed, base + 0.01 * seed)
    for policy, kind, base in [
        ("fcfs", "heuristic", 0.5),
        ("tuned_linear", "tuned", 0.8),
        ("learned", "network", 0.9),
        ("oracle", "clairvoyant", 0.95),
    ]
    for seed in range(4)
]


def test_budgets_are_printed():
    table = policies_table(
        [
            {"label": "fcfs", "kind": "heuristic", "parameters": {}},
            {"label": "mine", "kind": "tuned", "parameters": {"search_requests": 3_072_000}},
            {"label": "agent", "kind": "network", "parameters": {"num_decisions": 500_000}},
            {
                "label": "polished",
                "kind": "network",
                "parameters": {
                    "num_decisions": 98_304,
                    "polish_requests": 6_000_000,
                    "clone_requests": 4_000_000,
                    "prior_search_requests": 10_000_000,
                },
            },
        ]
    )
    assert [line[2] for line in table.rows] == [
        "-",
        "3,072,000 requests",
        "500,000 decisions",
        "98,304 decisions, 10,000,000 requests, 10,000,000 requests for its prior",
    ]


def test_each_policy_is_set_against_what_was_tuned():
    comparison = compare(ROWS)
    assert comparison.best_heuristic == "fcfs"
    table = opponents_table(comparison)
    assert table.columns == ("policy", "middle half", "to tuned_linear [95 %]")
    cells = {line[0]: line[1:] for line in table.rows}
    assert cells["fcfs"] == ("0.5150", "-0.3000 [-0.3000, -0.3000]")
    assert cells["learned"][1].startswith("+0.1000")
    assert cells["tuned_linear"][1] == "-"


def test_a_clairvoyant_policy_is_no_opponent():
    comparison = compare(ROWS)
    for one in comparison.policies:
        assert "oracle" not in {versus.heuristic for versus in one.versus_each}
