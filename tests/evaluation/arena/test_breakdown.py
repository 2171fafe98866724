from __future__ import annotations

import itertools

from sched_env.evaluation.arena.breakdown import breakdown_tables

GAINS = {"ample": 0.02, "scarce": -0.01}


def _rows(policies: dict[str, tuple[str, float]]) -> list[dict[str, object]]:
    rows = []
    cells = itertools.product(policies.items(), ("a", "b"), (0.8, 1.3), GAINS, range(3))
    for (policy, (kind, gain)), trace, load, pool, seed in cells:
        share = 0 if kind == "tuned" else GAINS[pool] + gain
        rows.append(
            {
                "policy": policy,
                "policy_kind": kind,
                "trace": trace,
                "load": load,
                "kv_pool": pool,
                "slo": "normal",
                "seed": seed,
                "goodput_weighted": 0.5 + 0.1 * load + 0.01 * seed + share,
            }
        )
    return rows


def test_differences_are_paired_by_condition_and_averaged_over_what_was_learned() -> None:
    policies = {
        "tuned_linear": ("tuned", 0.0),
        "one": ("network", 0.001),
        "two": ("network", 0.003),
        "fcfs": ("heuristic", -0.3),
    }
    (table,) = breakdown_tables(_rows(policies))
    lines = {line[0]: line[1:] for line in table.rows}
    assert list(lines) == [
        "all",
        "trace a",
        "trace b",
        "load 0.8",
        "load 1.3",
        "KV pool ample",
        "KV pool scarce",
        "SLO normal",
    ]
    assert lines["all"][:2] == ("0.6150", "0.6220")
    assert lines["KV pool ample"][2:] == ("+0.0220 [+0.0220, +0.0220]", "+0.0210", "+0.0230")
    assert lines["KV pool scarce"][2:] == ("-0.0080 [-0.0080, -0.0080]", "-0.0090", "-0.0070")
    assert table.columns[1:3] == ("tuned_linear", "mean of 2 learned")


def test_there_is_no_table_without_something_tuned_and_something_learned() -> None:
    assert breakdown_tables(_rows({"tuned_linear": ("tuned", 0.0)})) == []
    assert breakdown_tables(_rows({"one": ("network", 0.0), "fcfs": ("heuristic", 0.0)})) == []
